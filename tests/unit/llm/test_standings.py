# SPDX-License-Identifier: Apache-2.0
"""What may be said about a request beside its prompt and its sampling."""

from __future__ import annotations

import pytest

from enginekit import make_engine
from llmkit import ChatTokenizer, FakeAssembled
from octavo.engine.engine import Engine
from octavo.llm import LLM
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest
from octavo.types.request import ServiceClass, Standing
from octavo.types.sampling_params import SamplingParams

FOUR = SamplingParams(temperature=0, max_tokens=4)


class TestStanding:
    def llm(self, **scheduler: object) -> tuple[LLM, Engine]:
        engine = make_engine(**scheduler)
        return LLM.from_assembled(FakeAssembled(engine, ChatTokenizer())), engine

    def test_one_for_all_or_one_for_each(self) -> None:
        llm, engine = self.llm(scheduling_policy="priority")
        two = [Standing(user="a"), Standing(user="b", service_class=ServiceClass.BATCH)]
        llm.enqueue(["x", "y"], FOUR, standing=two)
        llm.enqueue_chat([{"role": "user", "content": "z"}], FOUR, standing=Standing(priority=3))
        requests = [group.request for group in engine.groups.values()]
        assert [request.user for request in requests] == ["a", "b", ""]
        assert requests[1].service_class is ServiceClass.BATCH
        assert [request.priority for request in requests] == [0, 0, 3]
        llm.wait_for_completion(use_tqdm=False)

    def test_priority_as_vllm_takes_it(self) -> None:
        llm, _ = self.llm(scheduling_policy="priority")
        assert len(llm.generate(["x", "y"], FOUR, priority=[2, -1], use_tqdm=False)) == 2
        assert len(llm.generate("x", FOUR, priority=1, use_tqdm=False)) == 1
        with pytest.raises(InvalidRequest, match="got 1 of priority for 2 prompts"):
            llm.generate(["x", "y"], FOUR, priority=[1])
        with pytest.raises(InvalidRequest, match="64 bits"):
            llm.generate("x", FOUR, priority="high")  # type: ignore[arg-type]
        plain, engine = self.llm()
        with pytest.raises(InvalidRequest, match="unless scheduling_policy is priority"):
            plain.generate(["x", "y"], FOUR, priority=[0, 1])
        assert not engine.groups

    def test_a_salt_keeps_prompts_apart(self) -> None:
        llm, _ = self.llm()
        prompt = {"prompt": "x" * 20}

        def num_cached(**extra: str) -> int:
            (output,) = llm.generate([{**prompt, **extra}], FOUR, use_tqdm=False)
            return output.num_cached_tokens

        assert num_cached() == 0
        assert num_cached() == 16
        assert num_cached(cache_salt="s") == 0
        assert num_cached(cache_salt="s") == 16
        with pytest.raises(InvalidRequest):
            llm.generate([{"cache_salt": "s"}], FOUR)

    def test_the_cache_can_be_reset(self) -> None:
        llm, engine = self.llm()
        llm.generate("x" * 20, FOUR, use_tqdm=False)
        assert llm.reset_prefix_cache()
        assert llm.reset_prefix_cache(preempt_running=True)
        assert engine.stats().num_free_blocks == engine.stats().num_blocks
        assert llm.generate("x" * 20, FOUR, use_tqdm=False)[0].num_cached_tokens == 0

    def test_a_search_goes_where_samples_go(self) -> None:
        llm, _ = self.llm()
        params = [BeamSearchParams(beam_width=3, n=2, max_tokens=4), FOUR]
        search, sample = llm.generate(["x", "y"], params, use_tqdm=False)
        assert (len(search.outputs), len(sample.outputs)) == (2, 1)
        assert search.outputs[0].score >= search.outputs[1].score
