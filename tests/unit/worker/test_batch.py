# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass

import pytest

from octavo.types.step import (
    BlockCopy,
    RowOpen,
    RowResult,
    RowSampling,
    RowWork,
    StepPlan,
    TokenLogprobs,
)
from octavo.worker.batch import flatten, flatten_rows, to_result


@dataclass(frozen=True)
class Token:
    token_id: int
    logprob: float = 0.0
    rank: int = 0
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Outcome:
    sampled: Token | None = None
    scored: tuple[Token, ...] = ()
    error: str = ""


PREFILL = RowWork(2, 0, 3, (7, 8, 9), (4, 5), samples=True, targets=(8, 9))
DECODE = RowWork(0, 6, 1, samples=True, replaced=((0, 3),), allowed=b"abc")
FORK = RowWork(1, 3, 0, samples=True, logits_of=2, allowed=b"de")


def test_ids_lie_one_after_the_other_and_work_says_how_many() -> None:
    opened = (RowOpen(2, RowSampling()),)
    copies = (BlockCopy(1, 2, 5),)
    plan = StepPlan(1, (3,), opened, ((6, 7),), ((8, 9),), copies, (PREFILL, DECODE, FORK))
    batch = flatten(plan)
    assert batch.closed == (3,)
    assert batch.opened == opened
    assert batch.copies == [(1, 2, 5)]
    assert batch.swap_ins == ((6, 7),)
    assert batch.swap_outs == ((8, 9),)
    assert batch.work == [
        (2, 0, 3, 3, 2, 2, True, 0, None, 0),
        (0, 6, 1, 0, 0, 0, True, 1, None, 3),
        (1, 3, 0, 0, 0, 0, True, 0, 2, 2),
    ]
    assert batch.token_ids == [7, 8, 9]
    assert batch.new_blocks == [4, 5]
    assert batch.targets == [8, 9]
    assert batch.replaced == [(0, 3)]
    assert batch.allowed == b"abcde"


def test_what_is_left_of_a_failed_plan_is_its_rows() -> None:
    opened = (RowOpen(2, RowSampling(top_p=9.0), 70, (99,)), RowOpen(4, RowSampling()))
    batch = flatten_rows(StepPlan(1, (-1, 3), opened, work=(PREFILL, RowWork(9, 0, 1))), 4)
    assert batch.closed == [3]
    assert batch.opened == [RowOpen(2, RowSampling())]
    assert batch.work == [(2, 0, 0, 0, 0, 0, False, 0, None, 0)]
    assert not (batch.token_ids)
    assert not (batch.new_blocks)
    assert not (batch.targets)
    assert not (batch.copies)


def test_outcomes_become_results_in_the_order_of_the_work() -> None:
    plan = StepPlan(9, work=(PREFILL, DECODE))
    top = ((5, -0.5), (6, -1.5))
    outcomes = [Outcome(Token(5, -0.5, 1, top), (Token(8, -2.0, 3),)), Outcome(Token(6))]
    result = to_result(plan, outcomes, 0.25, 0.5)
    assert (result.step_id, result.compute_s, result.swap_s) == (9, 0.25, 0.5)
    assert result.rows == (
        RowResult(2, 5, TokenLogprobs(5, -0.5, 1, top), (TokenLogprobs(8, -2.0, 3),)),
        RowResult(0, 6),
    )


def test_a_failed_row_carries_its_error_and_nothing_else() -> None:
    plan = StepPlan(0, work=(DECODE,))
    (row,) = to_result(plan, [Outcome(error="not finite")], 0.0).rows
    assert row == RowResult(0, error="not finite")


def test_work_without_a_sample_has_no_token() -> None:
    (row,) = to_result(StepPlan(0, work=(DECODE,)), [Outcome()], 0.0).rows
    assert row == RowResult(0)


def test_a_missing_outcome_is_a_bug_and_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="shorter"):
        to_result(StepPlan(0, work=(DECODE,)), [], 0.0)
