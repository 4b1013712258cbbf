# SPDX-License-Identifier: Apache-2.0
"""Several samples of one prompt: the same as several requests, for less."""

from __future__ import annotations

import pytest

from enginekit import make_engine, run_all, run_one
from fakes import EchoExecutor, expected_tokens
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import OutputKind, SamplingParams
from octavo.types.step import RowSampling

PROMPT = list(range(20))


def sampled(n: int, **fields: object) -> SamplingParams:
    fields = {"seed": 7, "max_tokens": 8, **fields}
    return SamplingParams(n=n, temperature=1.0, **fields)  # type: ignore[arg-type]


def alone(sample_idx: int, num_tokens: int = 8) -> list[int]:
    sampling = RowSampling(temperature=1.0, seed=7, sample_idx=sample_idx)
    return expected_tokens(PROMPT, num_tokens, sampling)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("budget", [5, 8, 100])
def test_each_sample_is_what_its_seed_and_index_give_alone(depth: int, budget: int) -> None:
    engine = make_engine(EchoExecutor(depth=depth), max_num_batched_tokens=budget)
    output = run_one(engine, PROMPT, sampled(4))
    assert [sample.index for sample in output.outputs] == [0, 1, 2, 3]
    assert [list(sample.token_ids) for sample in output.outputs] == [alone(i) for i in range(4)]
    assert output.num_output_tokens == 32


def test_the_prompt_is_computed_once_and_its_blocks_are_shared() -> None:
    executor = EchoExecutor(num_blocks=12, block_size=8)
    run_one(make_engine(executor), [1] * 33, sampled(6, max_tokens=7))
    computed = sum(plan.num_tokens for plan in executor.plans)
    assert computed == 33 + 6 * 6  # the last token of an answer is sampled, not computed
    # 4 shared blocks and 6 tails; two blocks of the 12 are never touched.
    touched = {
        block_id
        for plan in executor.plans
        for part in (*plan.opened, *plan.work)
        for block_id in getattr(part, "blocks", getattr(part, "new_blocks", ()))
    } | {block_id for plan in executor.plans for work in plan.work for _, block_id in work.replaced}
    assert len(touched) <= 4 + 6


def test_a_small_pool_only_makes_it_slower() -> None:
    for num_blocks in (10, 11, 14):
        executor = EchoExecutor(num_blocks=num_blocks, block_size=8, depth=2)
        engine = make_engine(executor, max_num_batched_tokens=16)
        engine.add_request("a", PROMPT, sampled(4, max_tokens=8))
        engine.add_request("b", PROMPT, sampled(2, max_tokens=8))
        last = {o.request_id: o for o in run_all(engine) if o.finished}
        for request_id, n in (("a", 4), ("b", 2)):
            answers = [list(sample.token_ids) for sample in last[request_id].outputs]
            assert answers == [alone(i) for i in range(n)]


def test_samples_end_on_their_own() -> None:
    """Sample i stops at its token number i + 1."""

    def rule(tokens: list[int], sampling: RowSampling) -> int:
        return 65 if len(tokens) - 4 == sampling.sample_idx else 66

    engine = make_engine(EchoExecutor(rule=rule, depth=2))  # type: ignore[arg-type]
    output = run_one(engine, "abcd", sampled(3, stop_token_ids=[65]))
    assert [len(sample.token_ids) for sample in output.outputs] == [1, 2, 3]
    assert [sample.stop_reason for sample in output.outputs] == [65] * 3
    assert output.num_output_tokens == 6


def stream(n: int) -> list[RequestOutput]:
    def rule(tokens: list[int], sampling: RowSampling) -> int:
        return 65 if len(tokens) - 4 == 2 * sampling.sample_idx else 66

    engine = make_engine(EchoExecutor(rule=rule))  # type: ignore[arg-type]
    params = sampled(n, stop_token_ids=[65], output_kind=OutputKind.DELTA)
    engine.add_request("r", "abcd", params)
    return run_all(engine)


def test_a_stream_gives_each_token_and_each_end_once() -> None:
    outputs = stream(3)
    received: dict[int, list[int]] = {0: [], 1: [], 2: []}
    ends: list[int] = []
    for output in outputs:
        assert output.outputs, "an output without news"
        for sample in output.outputs:
            assert sample.index not in ends
            received[sample.index] += sample.token_ids
            if sample.finished():
                ends.append(sample.index)
    assert received == {0: [65], 1: [66, 66, 65], 2: [66] * 4 + [65]}
    assert ends == [0, 1, 2]
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]
    assert outputs[-1].num_output_tokens == 9


def test_one_output_per_step_has_all_that_it_gave() -> None:
    engine = make_engine()
    engine.add_request("r", PROMPT, sampled(4, output_kind=OutputKind.CUMULATIVE))
    outputs = run_all(engine)
    assert len(outputs) == 8
    assert [len(sample.token_ids) for sample in outputs[3].outputs] == [4] * 4


class TestBestOf:
    def test_gives_the_likeliest_and_counts_all(self) -> None:
        """Token t has logprob -t/8 whoever samples it, so the best sample has the smallest sum."""
        engine = make_engine()
        everyone = run_one(engine, PROMPT, sampled(5))
        best = run_one(make_engine(), PROMPT, sampled(2, best_of=5))
        ranked = sorted(everyone.outputs, key=lambda sample: sum(sample.token_ids))
        assert [s.token_ids for s in best.outputs] == [s.token_ids for s in ranked[:2]]
        assert [sample.index for sample in best.outputs] == [0, 1]
        assert best.num_output_tokens == 40
        assert best.outputs[0].logprobs is None  # nobody asked for them

    def test_shows_nothing_before_the_end(self) -> None:
        engine = make_engine()
        engine.add_request("r", PROMPT, sampled(1, best_of=3, output_kind=OutputKind.CUMULATIVE))
        (output,) = run_all(engine)
        assert output.finished


def test_an_abort_ends_every_sample() -> None:
    engine = make_engine(EchoExecutor(depth=2))
    engine.add_request("r", PROMPT, sampled(4))
    for _ in range(3):
        engine.step()
    engine.abort("r")
    last = run_all(engine)[-1]
    assert [sample.finish_reason for sample in last.outputs] == ["abort"] * 4


def test_the_error_of_one_sample_ends_its_request_and_no_other() -> None:
    executor = EchoExecutor(depth=2)
    engine = make_engine(executor)
    engine.add_request("bad", PROMPT, sampled(3, output_kind=OutputKind.FINAL_ONLY))
    engine.add_request("good", PROMPT, sampled(1, output_kind=OutputKind.FINAL_ONLY))
    engine.step()
    row = next(work.row for work in executor.plans[0].work)
    executor.row_errors[(4, row)] = "not a number"
    last = {output.request_id: output for output in run_all(engine)}
    assert last["bad"].error == "not a number"
    assert {sample.finish_reason for sample in last["bad"].outputs} == {"error"}
    assert list(last["good"].outputs[0].token_ids) == alone(0)
