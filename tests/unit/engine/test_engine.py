# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import count

import pytest

from enginekit import greedy, make_engine, run_all, run_one, script
from fakes import ByteTokenizer, EchoExecutor, ManualClock, expected_tokens
from octavo.types.errors import CorruptState, EngineStopped, InvalidRequest, PromptTooLong
from octavo.types.sampling_params import OutputKind, SamplingParams
from octavo.types.step import RowSampling, StepPlan, StepResult


def test_a_request_from_text_to_text() -> None:
    rule = script(*b"world", 257, prompt_len=6)
    last = run_one(make_engine(EchoExecutor(rule=rule)), "hello ", greedy(20))
    (sample,) = last.outputs
    assert last.finished
    assert (last.prompt, last.prompt_token_ids) == ("hello ", tuple(b"hello "))
    assert (sample.text, sample.token_ids) == ("world", (*b"world", 257))
    assert (sample.finish_reason, sample.stop_reason, last.num_output_tokens) == ("stop", None, 6)
    assert (last.error, last.num_cached_tokens) == (None, 0)


@pytest.mark.parametrize("budget", [1, 3, 8, 100])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_answer_does_not_depend_on_chunks_company_or_depth(budget: int, depth: int) -> None:
    engine = make_engine(
        EchoExecutor(num_blocks=9, depth=depth), max_num_batched_tokens=budget, max_num_seqs=5
    )
    prompts = {f"{i}": [i] * (1 + 5 * i) for i in range(7)}
    for request_id, prompt in prompts.items():
        engine.add_request(request_id, prompt, greedy(20))
    finals = {output.request_id: output for output in run_all(engine) if output.finished}
    for request_id, prompt in prompts.items():
        assert list(finals[request_id].outputs[0].token_ids) == expected_tokens(prompt, 20)


def test_each_step_gives_everything_so_far_or_what_is_new_or_the_end() -> None:
    rule = script(*b"abc", prompt_len=1)
    texts = {}
    for kind in OutputKind:
        engine = make_engine(EchoExecutor(rule=rule))
        engine.add_request("r", "x", greedy(3, output_kind=kind))
        outputs = run_all(engine)
        texts[kind] = [(output.outputs[0].text, output.outputs[0].token_ids) for output in outputs]
        assert [output.finished for output in outputs][-1]
        assert outputs[-1].num_output_tokens == 3
    assert texts[OutputKind.CUMULATIVE] == [
        ("a", (97,)),
        ("ab", (97, 98)),
        ("abc", (97, 98, 99)),
    ]
    assert texts[OutputKind.DELTA] == [("a", (97,)), ("b", (98,)), ("c", (99,))]
    assert texts[OutputKind.FINAL_ONLY] == [("abc", (97, 98, 99))]


def test_without_detokenising_there_are_ids_only() -> None:
    (sample,) = run_one(make_engine(), params=greedy(4, detokenize=False)).outputs
    assert (sample.text, len(sample.token_ids)) == ("", 4)


def test_half_a_character_at_the_end_is_shown_as_a_replacement() -> None:
    rule = script(0x61, 0xE2, 0x82, prompt_len=1)
    (sample,) = run_one(make_engine(EchoExecutor(rule=rule)), "x", greedy(3)).outputs
    assert sample.text == "a\ufffd"


class TestLimits:
    def test_max_tokens_ends_by_length(self) -> None:
        last = run_one(make_engine(), params=greedy(3))
        assert (last.outputs[0].finish_reason, last.num_output_tokens) == ("length", 3)

    @pytest.mark.parametrize("max_tokens", [None, 1000])
    def test_the_models_context_ends_by_length(self, max_tokens: int | None) -> None:
        last = run_one(make_engine(max_model_len=20), [1] * 5, greedy(max_tokens))
        assert (last.outputs[0].finish_reason, last.num_output_tokens) == ("length", 15)

    def test_the_pool_ends_by_length(self) -> None:
        last = run_one(make_engine(EchoExecutor(num_blocks=2)), [1] * 5, greedy(None))
        assert (last.outputs[0].finish_reason, last.num_output_tokens) == ("length", 11)

    def test_what_can_never_fit_is_refused_and_others_go_on(self) -> None:
        engine = make_engine(EchoExecutor(num_blocks=2))
        engine.add_request("fits", [1], greedy(3))
        with pytest.raises(PromptTooLong, match="16 fit the KV cache"):
            engine.add_request("never", [1] * 16, greedy())
        assert [output.request_id for output in run_all(engine) if output.finished] == ["fits"]


class TestIds:
    def test_a_live_id_is_refused_and_a_dead_one_is_free(self) -> None:
        engine = make_engine()
        engine.add_request("r", "a", greedy())
        with pytest.raises(InvalidRequest, match="'r' is in use") as refusal:
            engine.add_request("r", "b", greedy())
        assert refusal.value.param == "request_id"
        run_all(engine)
        engine.add_request("r", "b", greedy())
        assert run_all(engine)[-1].prompt == "b"

    def test_a_refused_request_leaves_nothing(self) -> None:
        engine = make_engine()
        for prompt, params in (("", greedy()), ("a", SamplingParams(n=17))):
            with pytest.raises(InvalidRequest):
                engine.add_request("r", prompt, params)
        engine.check()
        assert not engine.has_unfinished()


class TestPipeline:
    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_it_is_kept_full(self, depth: int) -> None:
        executor = EchoExecutor(depth=depth)
        engine = make_engine(executor)
        engine.add_request("r", "a", greedy(20))
        for num_steps in range(1, 10):
            engine.step()
            assert len(executor.plans) == num_steps + depth - 1
        stats = engine.stats()
        assert (stats.pipeline_depth, stats.num_inflight_steps) == (depth, depth - 1)

    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_a_stop_that_is_seen_late_has_no_effect_but_steps(self, depth: int) -> None:
        executor = EchoExecutor(depth=depth, rule=script(70, 71, 65, 72, prompt_len=1))
        engine = make_engine(executor)
        last = run_one(engine, "a", greedy(20, stop_token_ids=[65]))
        assert last.outputs[0].token_ids == (70, 71, 65)
        assert last.num_output_tokens == 3
        assert engine.stats().generation_tokens_total == 3
        assert len(executor.plans) == 3 + depth - 1
        engine.check()


class TestAbort:
    @pytest.mark.parametrize("depth", [1, 2, 3])
    @pytest.mark.parametrize("num_steps", range(7))
    def test_at_any_point_everything_comes_back(self, depth: int, num_steps: int) -> None:
        executor = EchoExecutor(num_blocks=8, depth=depth)
        engine = make_engine(executor, max_num_batched_tokens=4)
        engine.add_request("gone", [1] * 9, greedy(20))
        engine.add_request("stays", [2] * 3, greedy(5))
        outputs = []
        for _ in range(num_steps):
            outputs += engine.step()
        engine.abort("gone")
        engine.check()
        outputs += run_all(engine)
        finals = {output.request_id: output for output in outputs if output.finished}
        assert finals["gone"].outputs[0].finish_reason == "abort"
        assert list(finals["stays"].outputs[0].token_ids) == expected_tokens([2] * 3, 5)
        assert engine.stats().num_used_blocks == 0

    def test_is_idempotent_and_knows_no_strangers(self) -> None:
        engine = make_engine()
        engine.abort("nobody")
        assert not engine.has_unfinished()
        engine.add_request("r", "a", greedy())
        engine.abort("r")
        engine.abort("r")
        assert len(run_all(engine)) == 1

    def test_while_a_step_runs_the_result_is_not_answered(self) -> None:
        engine = make_engine()
        engine.add_request("r", "a", greedy())
        engine.step()
        (output,) = engine.step(before_commit=lambda: engine.abort("r"))
        assert output.outputs[0].finish_reason == "abort"
        assert output.num_output_tokens == 1
        assert not engine.has_unfinished()

    def test_a_preempted_request(self) -> None:
        engine = make_engine(EchoExecutor(num_blocks=2))
        engine.add_request("old", [1] * 7, greedy(9))
        engine.add_request("young", [2] * 7, greedy(9))
        while engine.stats().preemptions_total == 0:
            engine.step()
        engine.abort("young")
        engine.check()
        finals = {output.request_id: output for output in run_all(engine) if output.finished}
        assert finals["young"].outputs[0].finish_reason == "abort"
        assert list(finals["old"].outputs[0].token_ids) == expected_tokens([1] * 7, 9)

    def test_releases_the_text_that_was_held_back(self) -> None:
        rule = script(*b"abSTO", prompt_len=1)
        engine = make_engine(EchoExecutor(rule=rule))
        engine.add_request("r", "x", greedy(20, stop="STOP", output_kind=OutputKind.DELTA))
        text = ""
        for _ in range(5):
            text += "".join(output.outputs[0].text for output in engine.step())
        assert text == "ab"
        engine.abort("r")
        assert engine.step()[0].outputs[0].text == "STO"


class TestFailure:
    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_a_failed_step_ends_its_own_sequences_and_no_other(self, depth: int) -> None:
        executor = EchoExecutor(depth=depth)
        executor.fail_steps.add(3)
        engine = make_engine(executor, max_num_seqs=2)
        for i in range(4):
            engine.add_request(str(i), [i + 1], greedy(12))
        finals = {output.request_id: output for output in run_all(engine) if output.finished}
        for i in (0, 1):
            assert finals[str(i)].outputs[0].finish_reason == "error"
            assert finals[str(i)].error == "step 3 failed on purpose"
        for i in (2, 3):
            assert list(finals[str(i)].outputs[0].token_ids) == expected_tokens([i + 1], 12)
        assert engine.stats().failed_steps_total == 1
        assert engine.stats().num_used_blocks == 0

    def test_a_failed_row_ends_its_own_sequence(self) -> None:
        executor = EchoExecutor()
        executor.row_errors[2, 0] = "nan in the logits"
        engine = make_engine(executor)
        engine.add_request("bad", "a", greedy())
        engine.add_request("good", "b", greedy())
        finals = {output.request_id: output for output in run_all(engine) if output.finished}
        assert finals["bad"].error == "nan in the logits"
        assert finals["bad"].outputs[0].finish_reason == "error"
        assert finals["bad"].num_output_tokens == 1
        assert finals["good"].outputs[0].finish_reason == "length"

    @pytest.mark.parametrize("kind", OutputKind)
    def test_a_tokenizer_that_fails_ends_its_own_sequence(self, kind: OutputKind) -> None:
        class Brittle(ByteTokenizer):
            def token_bytes(self, token_id: int) -> bytes:
                if token_id == 66:
                    raise KeyError("no such token")
                return super().token_bytes(token_id)

        def rule(tokens: list[int], sampling: RowSampling) -> int:
            return 66 if tokens[0] == 1 and len(tokens) > 2 else 65

        engine = make_engine(EchoExecutor(rule=rule))
        engine._outputs._tokenizer = Brittle()
        engine.add_request("bad", [1], greedy(output_kind=kind))
        engine.add_request("good", [2], greedy(output_kind=kind))
        finals = {output.request_id: output for output in run_all(engine) if output.finished}
        assert "no such token" in str(finals["bad"].error)
        assert finals["bad"].outputs[0].finish_reason == "error"
        assert finals["good"].num_output_tokens == 8

    def test_requests_that_cannot_be_planned_are_our_bug_and_no_hang(self) -> None:
        engine = make_engine()
        engine.add_request("r", "a", greedy())
        engine._scheduler._rows._free.clear()
        with pytest.raises(CorruptState, match="1 requests are here and none can be planned"):
            engine.step()


class TestSeeds:
    def params(self, **fields: object) -> SamplingParams:
        return SamplingParams(temperature=1.0, max_tokens=6, **fields)  # type: ignore[arg-type]

    def test_a_given_seed_decides_the_answer(self) -> None:
        sampling = RowSampling(temperature=1.0, seed=42)
        for seeds in (count(), count(100)):
            last = run_one(make_engine(seeds=seeds.__next__), [5], self.params(seed=42))
            assert list(last.outputs[0].token_ids) == expected_tokens([5], 6, sampling)

    def test_requests_without_one_draw_it(self) -> None:
        engine = make_engine(seeds=iter([7, 8]).__next__)
        engine.add_request("a", [5], self.params())
        engine.add_request("b", [5], self.params(seed=9))
        engine.add_request("c", [5], self.params())
        finals = {output.request_id: output for output in run_all(engine) if output.finished}
        for request_id, seed in {"a": 7, "b": 9, "c": 8}.items():
            sampling = RowSampling(temperature=1.0, seed=seed)
            assert list(finals[request_id].outputs[0].token_ids) == expected_tokens(
                [5], 6, sampling
            )


class TestClosing:
    def test_close_frees_all_and_takes_no_more(self) -> None:
        executor = EchoExecutor()
        engine = make_engine(executor)
        engine.add_request("r", "a", greedy())
        engine.step()
        engine.close()
        engine.close()
        engine.check()
        assert executor.is_closed
        assert not engine.has_unfinished()
        with pytest.raises(EngineStopped):
            engine.add_request("s", "a", greedy())

    def test_an_executor_that_cannot_go_on_stops_the_engine(self) -> None:
        class Dead(EchoExecutor):
            def submit(self, plan: StepPlan) -> None:
                raise RuntimeError("the worker is gone")

            def collect(self) -> StepResult:
                raise AssertionError("nothing was submitted")

        engine = make_engine(Dead())
        engine.add_request("r", "a", greedy())
        with pytest.raises(RuntimeError, match="the worker is gone"):
            engine.step()
        engine.close()


class TestStats:
    def test_queues_blocks_tokens_and_times(self) -> None:
        clock = ManualClock(10.0)
        engine = make_engine(EchoExecutor(num_blocks=8), clock=clock, max_num_seqs=1)
        engine.add_request("a", [1] * 10, greedy(3))
        engine.add_request("b", [1] * 2, greedy(1))
        clock.advance(2.0)
        before = engine.stats()
        assert (before.num_waiting, before.num_running, before.oldest_waiting_s) == (2, 0, 2.0)
        engine.step()
        clock.advance(1.0)
        engine.step()
        now = engine.stats()
        assert (now.num_waiting, now.num_running, now.num_swapped) == (1, 1, 0)
        assert (now.num_free_blocks, now.num_used_blocks, now.num_limbo_blocks) == (6, 2, 0)
        assert (now.kv_usage, now.block_size) == (0.25, 8)
        assert (now.prompt_tokens_total, now.generation_tokens_total) == (10, 2)
        assert (now.computed_tokens_total, now.steps_total) == (11, 2)
        assert (now.ttft_s.count, now.ttft_s.sum, now.itl_s.sum) == (1, 2.0, 1.0)
        finals = [output for output in run_all(engine) if output.finished]
        end = engine.stats()
        assert end.finished_total == {"stop": 0, "length": 2, "abort": 0, "error": 0, "timeout": 0}
        assert (end.e2e_s.count, end.queue_s.sum, end.prompt_tokens_total) == (2, 2.0 + 3.0, 12)
        metrics = finals[0].metrics
        assert metrics is not None
        assert (metrics.arrival_time, metrics.first_token_time, metrics.finished_time) == (
            10.0,
            12.0,
            13.0,
        )
        assert before.num_waiting == 2  # a snapshot stays as it was

    def test_arrival_may_have_been_earlier(self) -> None:
        clock = ManualClock(10.0)
        engine = make_engine(clock=clock)
        engine.add_request("a", [1], greedy(1), arrival_time=4.0)
        run_all(engine)
        assert engine.stats().ttft_s.sum == 6.0

    def test_preemptions_are_counted(self) -> None:
        engine = make_engine(EchoExecutor(num_blocks=2))
        engine.add_request("old", [1] * 7, greedy(9))
        engine.add_request("young", [2] * 7, greedy(9))
        finals = {output.request_id: output for output in run_all(engine) if output.finished}
        total = engine.stats().preemptions_total
        assert total >= 1
        metrics = finals["young"].metrics
        assert metrics is not None
        assert metrics.num_preemptions == total
        # A token that was computed twice was sampled once.
        assert engine.stats().generation_tokens_total == 18
        assert engine.stats().prompt_tokens_total == 14


def test_check_finds_a_request_that_nobody_has_queued() -> None:
    engine = make_engine()
    engine.add_request("r", "a", greedy())
    del engine._groups["r"]
    with pytest.raises(CorruptState, match=r"queued requests \['r'\], known \[\]"):
        engine.check()


def test_check_finds_a_text_that_was_kept() -> None:
    engine = make_engine()
    engine._outputs._texts[3] = None  # type: ignore[assignment]
    with pytest.raises(CorruptState, match="1 texts are kept for 0 sequences"):
        engine.check()
