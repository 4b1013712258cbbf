# SPDX-License-Identifier: Apache-2.0
"""The strict worker is an oracle for everything above, so it must be able to say no."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fakes import EchoExecutor, PlanError, expected_tokens
from octavo.types.step import RowOpen, RowSampling, RowWork, StepPlan

OPENED = (RowOpen(0, RowSampling()), RowOpen(1, RowSampling()))
PREFILL = (
    RowWork(0, 0, 3, (5, 6, 7), (0,), True),
    RowWork(1, 0, 2, (8, 9), (1,), True),
)


def started(depth: int = 1) -> EchoExecutor:
    executor = EchoExecutor(num_blocks=4, num_rows=3, depth=depth)
    executor.submit(StepPlan(1, opened=OPENED, work=PREFILL))
    if depth == 1:
        executor.collect()
    return executor


def decode(row: int = 0, start: int = 3, **fields: object) -> RowWork:
    return RowWork(row, start, 1, samples=True, **fields)  # type: ignore[arg-type]


def test_a_right_plan_runs_and_reads_back_what_was_stored() -> None:
    executor = started()
    executor.submit(StepPlan(2, work=(decode(),)))
    (row,) = executor.collect().rows
    assert [row.token_id] == expected_tokens([5, 6, 7], 2)[1:]


@pytest.mark.parametrize(
    ("message", "plan"),
    [
        ("step 3 after 1", StepPlan(3, work=(decode(),))),
        ("a plan without work", StepPlan(2)),
        ("row 2 is closed but not open", StepPlan(2, closed=(2,), work=(decode(),))),
        ("row 0 is opened twice", StepPlan(2, opened=OPENED[:1], work=(decode(),))),
        ("no row 3", StepPlan(2, opened=(RowOpen(3, RowSampling()),), work=(decode(),))),
        ("row 2 works but is not open", StepPlan(2, work=(decode(2),))),
        ("row 0 works but is not open", StepPlan(2, closed=(0,), work=(decode(),))),
        ("a row works twice", StepPlan(2, work=(decode(), decode(start=4)))),
        ("start 4, but 3 computed", StepPlan(2, work=(decode(start=4),))),
        ("start 2, but 3 computed", StepPlan(2, work=(decode(start=2),))),
        ("row 0 computes 0 tokens", StepPlan(2, work=(RowWork(0, 3, 0),))),
        ("needs 9 slots and has 8", StepPlan(2, work=(RowWork(0, 3, 6, (1,) * 6),))),
        ("does not need", StepPlan(2, work=(decode(new_blocks=(2,)),))),
        ("no block 4", StepPlan(2, work=(RowWork(0, 3, 6, (1,) * 6, (4,)),))),
        ("belongs to rows", StepPlan(2, work=(RowWork(0, 3, 6, (1,) * 6, (1,)),))),
        ("token_ids and num_tokens", StepPlan(2, work=(RowWork(0, 3, 2, (1,)),))),
        ("a decode computes one", StepPlan(2, work=(RowWork(0, 3, 2),))),
        ("more targets", StepPlan(2, work=(decode(targets=(1, 2)),))),
        (
            "decodes but never sampled",
            StepPlan(2, closed=(0,), opened=OPENED[:1], work=(decode(start=0, new_blocks=(2,)),)),
        ),
    ],
)
def test_each_breach_of_the_contract_is_named(message: str, plan: StepPlan) -> None:
    with pytest.raises(PlanError, match=message):
        started().submit(plan)


def test_a_block_is_not_given_out_while_a_step_in_flight_may_use_it() -> None:
    executor = started(depth=2)
    reuse = StepPlan(2, closed=(0,), opened=OPENED[:1], work=(RowWork(0, 0, 1, (1,), (0,), True),))
    with pytest.raises(PlanError, match="block 0 is given out while a step may use it"):
        executor.submit(reuse)


def test_no_more_plans_are_taken_than_the_depth_and_none_after_close() -> None:
    executor = started(depth=2)
    executor.submit(StepPlan(2, work=(decode(),)))
    with pytest.raises(PlanError, match="more than 2 plans in flight"):
        executor.submit(StepPlan(3, work=(decode(start=4),)))
    executor.collect()
    executor.collect()
    with pytest.raises(PlanError, match="collect without a plan"):
        executor.collect()
    executor.close()
    with pytest.raises(PlanError, match="after close"):
        executor.submit(StepPlan(3, work=(decode(start=4),)))


def test_the_answer_depends_on_each_token_and_on_the_order() -> None:
    def first(prompt: Sequence[int]) -> int:
        return expected_tokens(prompt, 1)[0]

    assert len({first(prompt) for prompt in ([1, 2, 3], [1, 3, 2], [1, 2], [4, 2, 3])}) == 4


def test_a_mask_is_obeyed_and_must_allow_something() -> None:
    executor = started()
    mask = bytearray(33)
    mask[200 // 8] |= 1 << 200 % 8
    executor.submit(StepPlan(2, work=(decode(allowed=bytes(mask)),)))
    assert [row.token_id for row in executor.collect().rows] == [200]
    executor.submit(StepPlan(3, work=(decode(start=4, allowed=bytes(33)),)))
    (row,) = executor.collect().rows
    assert row.error == "the settings leave no token"
    executor = started()
    with pytest.raises(PlanError, match="32 bytes"):
        executor.submit(StepPlan(2, work=(decode(allowed=bytes(32)),)))
