# SPDX-License-Identifier: Apache-2.0
"""Sharing, swapping and failing, as the strict worker sees them: right plans run and give the
answers of rows that share nothing; each kind of corruption is planted once, and is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes import EchoExecutor, PlanError, expected_tokens
from octavo.types.errors import StepFailed
from octavo.types.step import BlockCopy, RowOpen, RowResult, RowSampling, RowWork, StepPlan

GREEDY = RowSampling()
PROMPT = tuple(range(30, 41))  # eleven tokens: a block of eight, and three slots of the next


def sampling_of(sample_idx: int) -> RowSampling:
    return RowSampling(temperature=1.0, seed=3, sample_idx=sample_idx)


class Bench:
    """An executor that is fed plan after plan."""

    def __init__(self, *, depth: int = 1, num_swap_blocks: int = 4) -> None:
        self.executor = EchoExecutor(
            num_blocks=12, num_rows=6, num_swap_blocks=num_swap_blocks, depth=depth
        )
        self.step_id = 0

    def submit(self, *work: RowWork, **fields: object) -> None:
        self.step_id += 1
        self.executor.submit(StepPlan(self.step_id, work=work, **fields))  # type: ignore[arg-type]

    def run(self, *work: RowWork, **fields: object) -> tuple[RowResult, ...]:
        self.submit(*work, **fields)
        return self.executor.collect().rows

    def prefill(self, row: int = 0, blocks: Sequence[int] = (0, 1)) -> int:
        work = RowWork(row, 0, len(PROMPT), PROMPT, tuple(blocks), samples=True)
        (result,) = self.run(work, opened=(RowOpen(row, GREEDY),))
        assert result.token_id is not None
        return result.token_id


def decode(row: int, start: int, token_id: int | None = None, **fields: object) -> RowWork:
    ids = () if token_id is None else (token_id,)
    return RowWork(row, start, 1, ids, samples=True, **fields)  # type: ignore[arg-type]


def hit(num_cached: int, blocks: tuple[int, ...], row: int = 1) -> tuple[RowOpen, RowWork]:
    """A row that finds part of the prompt in the cache, and the work on the rest."""
    rest = PROMPT[num_cached:]
    work = RowWork(row, num_cached, len(rest), rest, samples=True)
    return RowOpen(row, GREEDY, num_cached, blocks), work


FORK = RowWork(1, 11, 0, samples=True, logits_of=0)
PARENT = RowWork(0, 0, 11, PROMPT, (0, 1), samples=True)
FAMILY = (RowOpen(0, sampling_of(0)), RowOpen(1, sampling_of(1), 11, (0, 1)))


def forked(depth: int = 1) -> Bench:
    bench = Bench(depth=depth)
    rows = bench.run(PARENT, FORK, opened=FAMILY)
    for idx, row in enumerate(rows):
        assert row.token_id == expected_tokens(PROMPT, 1, sampling_of(idx))[0]
    return bench


def test_forks_part_by_copy_on_write() -> None:
    bench = forked()
    split = decode(1, 11, replaced=((1, 2),))
    for start, second in ((11, split), (12, decode(1, 12)), (13, decode(1, 13))):
        copies = (BlockCopy(1, 2, 3),) if start == 11 else ()
        rows = bench.run(decode(0, start), second, copies=copies)
    for idx, row in enumerate(rows):
        assert row.token_id == expected_tokens(PROMPT, 4, sampling_of(idx))[-1]


def test_a_parent_may_move_away_and_the_child_stay() -> None:
    bench = forked()
    bench.run(decode(0, 11, replaced=((1, 2),)), copies=(BlockCopy(1, 2, 3),))
    (row,) = bench.run(decode(1, 11))
    assert row.token_id == expected_tokens(PROMPT, 2, sampling_of(1))[-1]


def test_the_last_owner_writes_in_place() -> None:
    bench = forked()
    (row,) = bench.run(decode(1, 11), closed=(0,))
    assert row.token_id == expected_tokens(PROMPT, 2, sampling_of(1))[-1]


@pytest.mark.parametrize(
    ("message", "plan"),
    [
        ("rows 0 and 1 write to block 1", {"work": (decode(0, 11), decode(1, 11))}),
        (
            "position 8, in block 2, holds None",
            {"work": (decode(0, 11, replaced=((1, 2),)),)},
        ),
        (
            "position 10, in block 2, holds None",
            {
                "work": (decode(0, 11, replaced=((1, 2),)),),
                "copies": (BlockCopy(1, 2, 2),),
            },
        ),
        (
            "position 8, in block 2, holds",
            {
                "work": (decode(0, 11, replaced=((1, 2),)),),
                "copies": (BlockCopy(0, 2, 3),),
            },
        ),
        (
            "copies slots that were never written",
            {
                "work": (decode(0, 11, replaced=((1, 2),)),),
                "copies": (BlockCopy(1, 2, 4),),
            },
        ),
        (
            "block 2 is copied to and no row's",
            {"work": (decode(0, 11),), "copies": (BlockCopy(1, 2, 3),)},
        ),
        (
            "block 0 is given out and belongs to rows",
            {"work": (decode(0, 11, replaced=((1, 0),)),)},
        ),
        ("has no entry 2", {"work": (decode(0, 11, replaced=((2, 2),)),)}),
        (
            "given out twice",
            {
                "work": (
                    decode(0, 11, replaced=((1, 2),)),
                    decode(1, 11, replaced=((1, 2),)),
                )
            },
        ),
        (
            "moved to twice",
            {
                "work": (decode(0, 11, replaced=((1, 2),)),),
                "copies": (BlockCopy(1, 2, 3), BlockCopy(0, 2, 3)),
            },
        ),
    ],
)
def test_each_wrong_copy_on_write_is_named(message: str, plan: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=message):
        forked().executor.submit(StepPlan(2, **plan))  # type: ignore[arg-type]


def test_a_missing_copy_on_write_is_named_where_it_would_do_harm() -> None:
    bench = forked()
    bench.run(decode(0, 11))  # the slot is nobody else's yet
    with pytest.raises(
        PlanError, match="writes to slot 3 of block 1, of which row 0 holds 4 slots: no copy-on"
    ):
        bench.submit(decode(1, 11))


@pytest.mark.parametrize(
    ("message", "opened", "parent", "child"),
    [
        ("which does not sample", {}, {"samples": False}, {}),
        ("forks and does not sample", {}, {}, {"samples": False}),
        ("which computes nothing", {}, {}, {"logits_of": 3}),
        ("which computes nothing", {}, {}, {"logits_of": 1}),
        ("start 10, but 11 computed", {}, {}, {"start": 10}),
        ("ends at 11, but starts at 10", {"num_computed": 10}, {}, {"start": 10}),
        ("a fork computes nothing", {}, {}, {"num_tokens": 1}),
        ("more targets than tokens", {}, {}, {"targets": (1,)}),
        ("in 8 slots", {"blocks": (0,)}, {}, {}),
        ("has a block twice", {"blocks": (0, 0)}, {}, {}),
        ("position 8, in block 5, holds None", {"blocks": (0, 5)}, {}, {}),
        ("position 0, in block 1, holds", {"blocks": (1, 0)}, {}, {}),
    ],
)
def test_each_wrong_fork_is_named(
    message: str,
    opened: dict[str, object],
    parent: dict[str, object],
    child: dict[str, object],
) -> None:
    plan = {
        "opened": (FAMILY[0], replace(FAMILY[1], **opened)),  # type: ignore[arg-type]
        "work": (replace(PARENT, **parent), replace(FORK, **child)),  # type: ignore[arg-type]
    }
    with pytest.raises(PlanError, match=message):
        Bench().executor.submit(StepPlan(1, **plan))  # type: ignore[arg-type]


@pytest.mark.parametrize("num_cached", [8, 10])
def test_a_prefix_hit_answers_as_a_whole_prefill(num_cached: int) -> None:
    bench = Bench()
    token_id = bench.prefill()
    opened, work = hit(num_cached, (0, 5))
    copies = (BlockCopy(1, 5, num_cached - 8),) if num_cached > 8 else ()
    (row,) = bench.run(work, opened=(opened,), copies=copies)
    assert row.token_id == token_id


def test_a_hit_on_a_block_of_another_sequence_is_named() -> None:
    bench = Bench()
    bench.prefill()
    other = RowWork(2, 0, 16, tuple(range(16)), (2, 3), samples=True)
    bench.run(other, opened=(RowOpen(2, GREEDY),))
    opened, work = hit(10, (0, 3))
    with pytest.raises(PlanError, match="row 1: position 8 does not follow what is before it"):
        bench.submit(work, opened=(opened,))


def test_a_hit_at_another_position_is_named() -> None:
    bench = Bench()
    bench.prefill()
    opened = RowOpen(1, GREEDY, 3, (1,))  # the right tokens, and the cache of another past
    with pytest.raises(PlanError, match="position 0 does not follow"):
        bench.submit(RowWork(1, 3, 1, (9,), samples=True), opened=(opened,))


def test_a_hit_on_more_than_was_computed_is_named() -> None:
    bench = Bench()
    bench.prefill()
    with pytest.raises(PlanError, match="position 11 was never written"):
        bench.submit(
            RowWork(1, 12, 1, (9,), samples=True), opened=(RowOpen(1, GREEDY, 12, (0, 1)),)
        )


def test_a_stale_hit_on_a_block_that_was_reused_is_named() -> None:
    bench = Bench()
    bench.prefill()
    other = RowWork(2, 0, 8, tuple(range(8)), (0,), samples=True)
    bench.run(other, closed=(0,), opened=(RowOpen(2, GREEDY),))
    opened, work = hit(10, (0, 1))
    with pytest.raises(PlanError, match="position 8 does not follow"):
        bench.submit(work, opened=(opened,))


def test_a_stale_hit_on_all_of_another_request_gives_its_answer() -> None:
    """The one thing that the worker cannot know; who compares answers can."""
    bench = Bench()
    bench.prefill()
    other = tuple(range(11))
    work = RowWork(1, 10, 1, other[10:], samples=True)
    bench.run(work, opened=(RowOpen(1, GREEDY, 10, (0, 5)),), copies=(BlockCopy(1, 5, 2),))
    assert bench.executor._rows[1].tokens == [*PROMPT[:10], 10] != [*other]


def test_a_block_reused_while_its_row_goes_on_is_named() -> None:
    bench = Bench()
    bench.prefill()
    with pytest.raises(PlanError, match="block 1 is given out and belongs to rows"):
        bench.submit(
            RowWork(2, 0, 8, tuple(range(8)), (1,), samples=True), opened=(RowOpen(2, GREEDY),)
        )


def swapped(depth: int = 1) -> tuple[Bench, int]:
    """Row 0 in swap blocks 2 and 3; its device blocks overwritten by row 1."""
    bench = Bench(depth=depth)
    last = bench.prefill()
    bench.run(swap_outs=((0, 2), (1, 3)), closed=(0,))
    other = RowWork(1, 0, 16, tuple(range(16)), (0, 1), samples=True)
    bench.run(other, opened=(RowOpen(1, GREEDY),))
    return bench, last


BACK = RowOpen(0, GREEDY, 11, (7, 6))


def test_a_swapped_row_returns_to_other_blocks() -> None:
    bench, last = swapped()
    (row,) = bench.run(decode(0, 11, last), opened=(BACK,), swap_ins=((2, 7), (3, 6)))
    assert row.token_id == expected_tokens(PROMPT, 2)[-1]
    bench.run(swap_outs=((6, 3),), closed=(0,))  # block 7 is clean: swap block 2 still has it
    again = RowOpen(0, GREEDY, 12, (8, 9))
    assert row.token_id is not None
    (row,) = bench.run(decode(0, 12, row.token_id), opened=(again,), swap_ins=((2, 8), (3, 9)))
    assert row.token_id == expected_tokens(PROMPT, 3)[-1]


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("does not follow", {"swap_ins": ((3, 7), (2, 6))}),
        ("position 8 was never written", {"swap_ins": ((2, 7),)}),
        ("swap block 0 is read but was never written", {"swap_ins": ((2, 7), (0, 6))}),
        ("no swap block 4", {"swap_ins": ((2, 7), (4, 6))}),
        ("moved to twice", {"swap_ins": ((2, 7), (3, 7))}),
        ("block 0 is given out and belongs to rows", {"swap_ins": ((2, 0), (3, 6))}),
        (
            "a swap block is read and written in one step",
            {"swap_ins": ((2, 7), (3, 6)), "swap_outs": ((0, 3),)},
        ),
        (
            "a swap block is written twice",
            {"swap_ins": ((2, 7), (3, 6)), "swap_outs": ((0, 0), (1, 0))},
        ),
        (
            "block 7 is swapped in and out in one step",
            {"swap_ins": ((2, 7), (3, 6)), "swap_outs": ((7, 0),)},
        ),
    ],
)
def test_each_wrong_swap_is_named(message: str, fields: dict[str, object]) -> None:
    bench, last = swapped()
    with pytest.raises(PlanError, match=message):
        bench.submit(decode(0, 11, last), opened=(BACK,), **fields)


def test_a_swap_out_after_the_block_was_overwritten_is_named_when_it_returns() -> None:
    bench = Bench()
    last = bench.prefill()
    other = RowWork(1, 0, 8, tuple(range(8)), (0,), samples=True)
    bench.run(other, closed=(0,), opened=(RowOpen(1, GREEDY),))
    bench.run(swap_outs=((0, 2), (1, 3)))
    with pytest.raises(PlanError, match="position 8 does not follow"):
        bench.submit(decode(0, 11, last), opened=(BACK,), swap_ins=((2, 7), (3, 6)))


def test_blocks_in_flight_are_not_handed_out() -> None:
    """By any way of handing out: appended, opened with, copied to, swapped to."""
    ways: list[dict[str, object]] = [
        {
            "work": (RowWork(2, 0, 8, tuple(range(8)), (0,), samples=True),),
            "opened": (RowOpen(2, GREEDY),),
        },
        {
            "work": (RowWork(2, 0, 8, tuple(range(8)), samples=True),),
            "opened": (RowOpen(2, GREEDY, 0, (0,)),),
        },
        {"work": (), "copies": (BlockCopy(1, 0, 3),)},
        {"work": (), "swap_ins": ((2, 0),)},
    ]
    for way in ways:
        bench = Bench(depth=2)
        last = bench.prefill()
        bench.run(swap_outs=((0, 2),))
        bench.submit(decode(0, 11, last))
        with pytest.raises(PlanError, match="block 0 is given out while a step may use it"):
            bench.executor.submit(StepPlan(4, closed=(0,), **way))  # type: ignore[arg-type]


def test_a_swap_block_in_flight_is_not_written() -> None:
    bench, last = swapped(depth=2)
    bench.submit(decode(0, 11, last), opened=(BACK,), swap_ins=((2, 7), (3, 6)))
    with pytest.raises(PlanError, match="swap block 2 is written while a step may read it"):
        bench.submit(decode(0, 12), swap_outs=((0, 2),))
    bench, last = swapped(depth=2)
    bench.run(decode(0, 11, last), opened=(BACK,), swap_ins=((2, 7), (3, 6)))
    bench.run(decode(0, 12), swap_outs=((0, 2),))


def test_results_wait_in_the_order_of_the_plans() -> None:
    bench = Bench(depth=3)
    last = bench.prefill()
    for start in (11, 12, 13):
        bench.submit(decode(0, start))
    tokens = [bench.executor.collect().rows[0].token_id for _ in range(3)]
    assert [last, *tokens] == expected_tokens(PROMPT, 4)


def test_a_failed_step_poisons_what_it_writes_and_costs_nobody_else() -> None:
    """Row 0 works in it, row 1 is opened by it, row 2 only decodes later."""
    bench = Bench(depth=3)
    bench.prefill()
    token_id = bench.prefill(2, (4, 5))
    bench.executor.fail_steps.add(3)
    bench.submit(decode(0, 11), opened=(RowOpen(1, GREEDY, 8, (0,)),))
    bench.submit(
        decode(0, 12), RowWork(1, 8, 3, PROMPT[8:], (6,), samples=True), decode(2, 11, token_id)
    )
    with pytest.raises(StepFailed, match="on purpose"):
        bench.executor.collect()
    rows = bench.executor.collect().rows
    assert [row.error for row in rows] == ["the row failed in an earlier step"] * 2 + [None]
    assert rows[2].token_id == expected_tokens(PROMPT, 2)[-1]
    opened = RowOpen(3, GREEDY, 12, (0, 1))
    (row,) = bench.run(RowWork(3, 12, 1, (7,), (), samples=True), closed=(0,), opened=(opened,))
    rubbish = expected_tokens([*PROMPT, expected_tokens(PROMPT, 1)[0], 7], 1)
    assert [row.token_id] != rubbish  # who goes on over what a failed step wrote answers wrongly


def test_a_failed_swap_leaves_rubbish_in_both_tiers() -> None:
    bench, last = swapped()
    bench.executor.fail_steps.add(bench.step_id + 1)
    bench.submit(decode(0, 11, last), opened=(BACK,), swap_ins=((2, 7), (3, 6)))
    with pytest.raises(StepFailed):
        bench.executor.collect()
    (row,) = bench.run(decode(0, 12))
    assert row.error == "the row failed in an earlier step"
    again = RowOpen(0, GREEDY, 11, (8, 9))  # the swap blocks themselves were only read
    (row,) = bench.run(decode(0, 11, last), closed=(0,), opened=(again,), swap_ins=((2, 8), (3, 9)))
    assert row.token_id == expected_tokens(PROMPT, 2)[-1]


def test_a_row_that_fails_takes_its_forks_with_it_and_nobody_else() -> None:
    bench = Bench()
    bench.executor.row_errors[1, 0] = "planted"
    healthy = RowWork(2, 0, 11, PROMPT, (4, 5), samples=True)
    rows = bench.run(PARENT, FORK, healthy, opened=(*FAMILY, RowOpen(2, GREEDY)))
    assert [row.error for row in rows] == ["planted", "planted", None]
    rows = bench.run(
        decode(0, 11),
        decode(2, 11),
        decode(1, 11, replaced=((1, 2),)),
        copies=(BlockCopy(1, 2, 3),),
    )
    before = "the row failed in an earlier step"
    assert [row.error for row in rows] == [before, None, before]


def test_a_table_may_be_longer_than_needed_only_where_that_is_agreed() -> None:
    executor = EchoExecutor(exact_growth=False)
    work = RowWork(0, 0, 3, (1, 2, 3), (0, 1, 2), samples=True)
    executor.submit(StepPlan(1, opened=(RowOpen(0, GREEDY),), work=(work,)))
    with pytest.raises(PlanError, match="has a block that it does not need"):
        EchoExecutor().submit(StepPlan(1, opened=(RowOpen(0, GREEDY),), work=(work,)))
    opened = RowOpen(0, GREEDY, 0, (0, 1, 2))  # an admission may reserve
    EchoExecutor().submit(StepPlan(1, opened=(opened,), work=(replace(work, new_blocks=()),)))


PENALISED = RowSampling(presence_penalty=1.0)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ((), "row 0 has another history"),
        (PROMPT[:-1], "row 0 has another history"),
        ((*PROMPT, 5), "row 0 has another history"),
        ((*PROMPT[:-1], 0), "row 0 has another history"),
    ],
)
def test_a_history_must_be_what_the_row_reads_back(history: tuple[int, ...], message: str) -> None:
    work = RowWork(0, 0, len(PROMPT), PROMPT, (0, 1), samples=True)
    opened = RowOpen(0, PENALISED, history=history, num_prompt=len(history))
    with pytest.raises(PlanError, match=message):
        Bench().submit(work, opened=(opened,))
    with pytest.raises(PlanError, match=r"does not need|has another history"):
        Bench().submit(work, opened=(replace(opened, sampling=GREEDY, history=(1, *history)),))
    right = replace(opened, history=PROMPT, num_prompt=len(PROMPT))
    bench = Bench()
    bench.run(work, opened=(right,))
    (row,) = bench.run(decode(0, 11))
    assert row.error is None
    with pytest.raises(PlanError, match="11 tokens known"):
        Bench().submit(work, opened=(replace(right, num_prompt=12),))


def test_masks_hold_and_must_cover_the_vocabulary() -> None:
    bench = Bench()
    mask = (1 << 77).to_bytes(33, "little")
    work = RowWork(0, 0, len(PROMPT), PROMPT, (0, 1), samples=True, allowed=mask)
    (row,) = bench.run(work, opened=(RowOpen(0, GREEDY),))
    assert row.token_id == 77
    with pytest.raises(PlanError, match="a mask of 32 bytes"):
        bench.submit(decode(0, 11, allowed=mask[:-1]))
    bench = Bench()
    (row,) = bench.run(replace(work, allowed=bytes(33)), opened=(RowOpen(0, GREEDY),))
    assert row.error == "the settings leave no token"
    (row,) = bench.run(decode(0, 11))
    assert row.error == "the row failed in an earlier step"
