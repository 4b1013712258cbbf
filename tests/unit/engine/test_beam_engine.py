# SPDX-License-Identifier: Apache-2.0
"""Beam search through engine, scheduler and blocks, against the same search on a table.

The worker's logprobs depend on every token that a beam reads back through its block table, so a
fork or a copy gone wrong changes what is found.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from enginekit import greedy, make_engine, run_all
from fakes import EchoExecutor
from octavo.engine.beam import BeamSearch
from octavo.engine.chaos import Chaos
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.env import ChaosRates
from octavo.types.errors import InvalidRequest
from octavo.types.outputs import RequestOutput
from octavo.types.step import RowResult, RowWork, TokenLogprobs

END = 257


def offer(tokens: Sequence[int], count: int) -> tuple[tuple[int, float], ...]:
    """Pseudo-random logprobs that depend on all tokens; the end comes up now and then."""
    rng = random.Random(str(list(tokens)))
    candidates = [*rng.sample(range(200), count), END]
    scored = [(token_id, -rng.random() * 3 - 0.1) for token_id in candidates]
    return tuple(sorted(scored, key=lambda pair: -pair[1])[:count])


class BeamExecutor(EchoExecutor):
    """Reports ``offer`` of what a row reads back."""

    def _answer(self, work: RowWork, errors: dict[int, str | None]) -> RowResult:
        result = super()._answer(work, errors)
        if result.logprobs is None:
            return result
        row = self._rows[work.row]
        top = offer(row.tokens, row.sampling.num_logprobs or 0)
        return replace(result, logprobs=TokenLogprobs(top[0][0], top[0][1], 1, top))


def alone(prompt: list[int], params: BeamSearchParams, max_tokens: int) -> list[list[int]]:
    search = BeamSearch(params, max_tokens=max_tokens, end_ids=frozenset({257, 258}))
    beams = [list(prompt)]
    while beams:
        branches = search.advance([offer(beam, search.num_offers) for beam in beams])
        beams = [[*beams[b.parent_idx], b.token_id] for b in branches]
    return [list(answer.token_ids) for answer in search.answers()]


def answers(output: RequestOutput) -> list[list[int]]:
    return [list(sample.token_ids) for sample in output.outputs]


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("budget", [3, 40])
@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_the_engine_finds_what_the_table_finds(width: int, budget: int, depth: int) -> None:
    params = BeamSearchParams(beam_width=width, max_tokens=12)
    engine = make_engine(BeamExecutor(depth=depth), max_num_batched_tokens=budget)
    engine.add_request("beam", [1] * 13, params)
    engine.add_request("other", "hello", greedy(20))
    last = {output.request_id: output for output in run_all(engine) if output.finished}
    assert answers(last["beam"]) == alone([1] * 13, params, 12)
    scores = [sample.score for sample in last["beam"].outputs]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
    assert engine.stats().num_used_blocks == 0


@pytest.mark.parametrize("seed", range(20))
def test_and_when_it_is_preempted_and_swapped_all_the_time(seed: int) -> None:
    rng = random.Random(seed)
    executor = BeamExecutor(
        num_blocks=rng.randint(14, 24),
        num_rows=8,
        depth=rng.randint(1, 3),
        num_swap_blocks=rng.choice([0, 30]),
    )
    engine = make_engine(
        executor,
        max_num_batched_tokens=rng.choice([4, 40]),
        chaos=Chaos(ChaosRates(preempt=0.3, swapfail=0.1), random.Random(seed)),
        preemption_mode=rng.choice(["swap", "recompute"]),
    )
    params = BeamSearchParams(beam_width=rng.randint(2, 4), max_tokens=10)
    prompts = [[rng.randrange(200) for _ in range(rng.randint(1, 20))] for _ in range(3)]
    for idx, prompt in enumerate(prompts):
        engine.add_request(str(idx), prompt, params)
    last = {output.request_id: output for output in run_all(engine)}
    for idx, prompt in enumerate(prompts):
        room = engine.admission.limits.answer_room(len(prompt), params.beam_width)
        assert answers(last[str(idx)]) == alone(prompt, params, min(10, room))
    assert engine.stats().num_used_blocks == 0


@pytest.mark.parametrize(("num_blocks", "width", "num_prompt"), [(3, 2, 8), (5, 3, 12), (6, 4, 1)])
def test_a_search_that_fills_the_pool_finds_room_for_a_beam_that_was_dropped(
    num_blocks: int, width: int, num_prompt: int
) -> None:
    """The beams that have offered wait for it, so no block may be kept back for their growth."""
    executor = BeamExecutor(num_blocks=num_blocks)
    engine = make_engine(executor, chaos=Chaos(ChaosRates(preempt=0.3), random.Random(1)))
    params = BeamSearchParams(beam_width=width, max_tokens=40, ignore_eos=True)
    engine.add_request("r", [1] * num_prompt, params)
    last = {output.request_id: output for output in run_all(engine)}
    assert last["r"].outputs[0].finish_reason == "length"


def test_branches_share_memory() -> None:
    executor = BeamExecutor(num_blocks=64)
    engine = make_engine(executor)
    engine.add_request("r", [1] * 40, BeamSearchParams(beam_width=4, max_tokens=8))
    peak = 0
    while engine.has_unfinished():
        engine.step()
        peak = max(peak, engine.stats().num_used_blocks)
    assert peak <= 5 + 4  # five blocks of prompt and a tail for each beam


def test_an_abort_and_an_error_end_a_search() -> None:
    executor = BeamExecutor()
    engine = make_engine(executor)
    params = BeamSearchParams(beam_width=3, max_tokens=20, ignore_eos=True)
    engine.add_request("a", "abc", params)
    engine.add_request("b", "abc", params)
    for _ in range(4):
        engine.step()
    engine.abort("a")
    executor.fail_steps.add(executor.plans[-1].step_id + 1)
    last = {output.request_id: output for output in run_all(engine)}
    assert last["a"].outputs[0].finish_reason == "abort"
    assert last["b"].outputs[0].finish_reason == "error"
    assert last["b"].error is not None
    assert engine.stats().num_used_blocks == 0


def test_a_search_wider_than_may_run_at_once_is_refused_by_name() -> None:
    engine = make_engine(max_num_seqs=3)
    with pytest.raises(InvalidRequest, match="beam_width must be at most 3") as refusal:
        engine.add_request("r", "abc", BeamSearchParams(beam_width=4))
    assert refusal.value.param == "beam_width"
