# SPDX-License-Identifier: Apache-2.0
"""Rows that share: forks of one prompt, prefixes that another row computed, blocks that were moved.
Every comparison is of bits, against the same tokens computed by a row of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_decoder_invariance import MIXED, WIDE, ids_for, poisoned
from tiny_decoder import LLAMA, VOCAB, Driver, TinyModel, make_model

from octavo.executor.threaded import ThreadedExecutor
from octavo.types.errors import StepFailed
from octavo.types.step import (
    BlockCopy,
    RowOpen,
    RowResult,
    RowSampling,
    RowWork,
    StepPlan,
)
from octavo.worker.batch import flatten

MODEL = make_model(WIDE, MIXED["k"], seed=7)
SMALL = make_model(LLAMA)
BLOCK = 16
NUM_DECODES = 20  # past the end of any block


def sampling_of(sample_idx: int) -> RowSampling:
    return RowSampling(
        temperature=1.0, top_p=0.95, seed=11, sample_idx=sample_idx, num_logprobs=VOCAB
    )


def alone(
    ids: Sequence[int], sampling: RowSampling, num_tokens: int, model: TinyModel = MODEL
) -> list[RowResult]:
    """The samples of a row that shares nothing."""
    driver = Driver(model)
    driver.open(0, sampling)
    results = [*driver.step(driver.work(0, ids, samples=True))]
    while len(results) < num_tokens:
        results += driver.step(driver.work(0, [], samples=True))
    return results


def assert_same(got: Sequence[RowResult], expected: Sequence[RowResult]) -> None:
    assert [row.error for row in got] == [None] * len(expected)
    assert [row.token_id for row in got] == [row.token_id for row in expected]
    assert [row.logprobs for row in got] == [row.logprobs for row in expected]


class Family:
    """Rows 0..n-1 forked from one prompt, each written to its own copy of the last block."""

    def __init__(self, driver: Driver, ids: Sequence[int], num_rows: int) -> None:
        self.driver = driver
        self.num_rows = num_rows
        self.results: list[list[RowResult]] = [[] for _ in range(num_rows)]
        self.tables: list[list[int]] = []
        self.num_computed = len(ids)
        self._prefill(ids)

    def _prefill(self, ids: Sequence[int]) -> None:
        self.driver.open(0, sampling_of(0))
        parent = self.driver.work(0, ids, samples=True)
        self.tables = [list(parent.new_blocks) for _ in range(self.num_rows)]
        opened = self.driver.take_opened()
        for row in range(1, self.num_rows):
            opened += (RowOpen(row, sampling_of(row), len(ids), parent.new_blocks),)
        forks = [
            RowWork(row, len(ids), 0, samples=True, logits_of=0) for row in range(1, self.num_rows)
        ]
        # A fork may stand before the row that it forks from.
        self._run(StepPlan(0, opened=opened, work=(*forks[:1], parent, *forks[1:])))

    def decode(self) -> None:
        work, copies = [], []
        idx, offset = divmod(self.num_computed, BLOCK)
        for row, table in enumerate(self.tables):
            fresh: tuple[int, ...] = ()
            replaced: tuple[tuple[int, int], ...] = ()
            if idx == len(table):
                fresh = (self.driver.take_block(),)
                table += fresh
            elif sum(other[idx] == table[idx] for other in self.tables) > 1:
                replaced = ((idx, self.driver.take_block()),)
                copies.append(BlockCopy(table[idx], replaced[0][1], offset))
                table[idx] = replaced[0][1]
            work.append(
                RowWork(
                    row, self.num_computed, 1, new_blocks=fresh, replaced=replaced, samples=True
                )
            )
        self.num_computed += 1
        self._run(StepPlan(0, copies=tuple(copies), work=tuple(work)))

    def _run(self, plan: StepPlan) -> None:
        result = self.driver.worker.execute(plan)
        assert [row.row for row in result.rows] == [work.row for work in plan.work]
        for row in result.rows:
            self.results[row.row].append(row)


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("length", [1, 5, BLOCK, 2 * BLOCK, 45])
def test_forks_of_a_prompt_equal_rows_of_their_own(length: int, num_threads: int) -> None:
    ids = ids_for(length, length)
    family = Family(Driver(MODEL, num_threads=num_threads), ids, num_rows=4)
    for _ in range(NUM_DECODES):
        family.decode()
    for row, results in enumerate(family.results):
        assert_same(results, alone(ids, sampling_of(row), NUM_DECODES + 1))
    assert len({tuple(r.token_id for r in results) for results in family.results}) == 4


def test_a_missing_copy_would_have_been_seen() -> None:
    """The planted error: forks that write to the block that they share. They overwrite each other,
    and the comparison above tells."""
    ids = ids_for(5, 5)
    family = Family(Driver(MODEL), ids, num_rows=2)
    (first,) = family.driver.worker.execute(
        StepPlan(0, work=(RowWork(0, 5, 1, samples=True),))
    ).rows
    family.driver.worker.execute(StepPlan(0, work=(RowWork(1, 5, 1, samples=True),)))
    (second,) = family.driver.worker.execute(
        StepPlan(0, work=(RowWork(0, 6, 1, samples=True),))
    ).rows
    expected = alone(ids, sampling_of(0), 3)
    assert_same([first], expected[1:2])
    assert second.logprobs != expected[2].logprobs


def test_more_forks_than_rows_of_logits_kept() -> None:
    """31 forks of a prompt, of which every position is scored too."""
    ids = ids_for(2, 40)
    driver = Driver(MODEL, num_threads=2)
    driver.open(0, sampling_of(0))
    parent = driver.work(0, ids, samples=True, targets=ids)
    opened = driver.take_opened()
    opened += tuple(RowOpen(i, sampling_of(i), 40, parent.new_blocks) for i in range(1, 32))
    forks = tuple(RowWork(i, 40, 0, samples=True, logits_of=0) for i in range(1, 32))
    rows = driver.worker.execute(StepPlan(0, opened=opened, work=(parent, *forks))).rows
    for idx, row in enumerate(rows):
        assert_same([row], alone(ids, sampling_of(idx), 1))
    assert len(rows[0].scored) == 40


def test_a_fork_of_a_decoding_row_takes_tokens_that_it_is_told() -> None:
    """As in beam search: the child's next token is chosen elsewhere and spelled out."""
    ids = ids_for(3, 21)
    driver = Driver(MODEL)
    driver.open(0, sampling_of(0))
    work = driver.work(0, ids, samples=True)
    (parent,) = driver.step(work)
    fresh = driver.take_block()
    opened = RowOpen(1, sampling_of(0), 21, work.new_blocks)
    copies = (BlockCopy(work.new_blocks[1], fresh, 5),)
    chosen = (7, 9)
    plan = StepPlan(
        0,
        opened=(opened,),
        copies=copies,
        work=(
            driver.work(0, [], samples=True),
            RowWork(1, 21, 1, chosen[:1], replaced=((1, fresh),), samples=True),
        ),
    )
    expected = alone(ids, sampling_of(0), 2)
    rows = driver.worker.execute(plan).rows
    assert_same([parent, rows[0]], expected)
    last = driver.worker.execute(StepPlan(0, work=(RowWork(1, 22, 1, chosen[1:], samples=True),)))
    assert_same(last.rows, alone([*ids, *chosen], sampling_of(0), 1))


BAD_FORKS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no samples": ({"samples": False}, {}, "row 0 does not sample here"),
    "elsewhere": ({}, {"start": 4}, r"work\[1\].start is 4, but row 1 has 5"),
    "of a fork": ({}, {"logits_of": 2}, "row 2 computes nothing here"),
    "of nobody": ({}, {"logits_of": 30}, "row 30 computes nothing here"),
    "with targets": ({}, {"targets": (1,)}, "num_targets must be in"),
    "with ids": ({}, {"token_ids": (1,)}, "token_ids has 1 ids for 0 tokens"),
}


@pytest.mark.parametrize("name", BAD_FORKS)
def test_a_fork_that_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    parent_changes, child_changes, message = BAD_FORKS[name]
    driver = Driver(SMALL)
    driver.open(0)
    driver.step(driver.work(0, [1, 2]))
    other = RowWork(2, 5, 0, samples=True, logits_of=0)
    parent: RowWork = replace(driver.work(0, [3, 4, 5], samples=True), **parent_changes)
    child: RowWork = replace(replace(other, row=1), **child_changes)
    table = driver.table(0)
    opened = tuple(RowOpen(row, RowSampling(), 5, table) for row in (1, 2))
    decoder = driver.worker._decoder
    with pytest.raises(ValueError, match=message):
        decoder.step(flatten(StepPlan(0, opened=opened, work=(parent, child, other))))
    good = StepPlan(
        0,
        opened=opened,
        work=(
            replace(parent, samples=True),
            RowWork(1, 5, 0, samples=True, logits_of=0),
            other,
        ),
    )
    assert all(row.token_id is not None for row in driver.worker.execute(good).rows)


def test_a_child_that_does_not_start_where_its_parent_ends_is_refused() -> None:
    driver = Driver(SMALL)
    driver.open(0)
    parent = driver.work(0, [3, 4, 5], samples=True)
    opened = (*driver.take_opened(), RowOpen(1, RowSampling(), 2, parent.new_blocks))
    child = RowWork(1, 2, 0, samples=True, logits_of=0)
    with pytest.raises(StepFailed, match="row 0 ends at token 3, but this one starts at 2"):
        driver.worker.execute(StepPlan(0, opened=opened, work=(parent, child)))


@pytest.mark.parametrize("num_cached", [1, 7, BLOCK, 2 * BLOCK, 2 * BLOCK + 5, 3 * BLOCK - 1])
def test_a_prefix_from_the_cache_equals_one_computed(num_cached: int) -> None:
    """Full blocks are shared, the partial one is copied; what follows is computed."""
    ids, sampling = ids_for(8, 3 * BLOCK), sampling_of(3)
    driver = Driver(MODEL, num_threads=2, seed=3)
    driver.open(0)
    other_end = list(ids_for(9, 3 * BLOCK))[num_cached:]
    first = driver.work(0, ids[:num_cached] + other_end)
    driver.step(first)
    num_full, num_partial = divmod(num_cached, BLOCK)
    fresh = tuple(driver.take_block() for _ in range(3 - num_full))
    copies = (BlockCopy(first.new_blocks[num_full], fresh[0], num_partial),) * (num_partial > 0)
    plan = StepPlan(
        0,
        opened=(RowOpen(1, sampling, num_cached, first.new_blocks[:num_full] + fresh),),
        copies=copies,
        work=(
            RowWork(1, num_cached, len(ids) - num_cached, tuple(ids[num_cached:]), samples=True),
        ),
    )
    results = [*driver.worker.execute(plan).rows]
    for i in range(3):
        fresh = (driver.take_block(),) if i == 0 else ()
        work = RowWork(1, len(ids) + i, 1, new_blocks=fresh, samples=True)
        results += driver.worker.execute(StepPlan(0, work=(work,))).rows
    assert_same(results, alone(ids, sampling, 4))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_with_plans_in_flight_a_failed_row_and_its_forks_fail_alone(depth: int) -> None:
    model = poisoned(MODEL)
    driver = Driver(model, num_threads=2)
    executor = ThreadedExecutor(driver.worker, depth=depth)
    healthy = ids_for(6, 9)
    healthy = [i if i != 13 else 14 for i in healthy]
    ill = [1, 13, 2]
    driver.open(0, sampling_of(0))
    driver.open(1)
    work = [driver.work(0, healthy, samples=True), driver.work(1, ill, samples=True)]
    opened = (*driver.take_opened(), RowOpen(2, sampling_of(1), 3, work[1].new_blocks))
    fork = RowWork(2, 3, 0, samples=True, logits_of=1)
    copy = driver.take_block()
    plans = [StepPlan(0, opened=opened, work=(*work, fork))]
    for step in range(1, depth):
        moves = ((0, copy),) if step == 1 else ()
        plans.append(
            StepPlan(
                step,
                copies=(BlockCopy(work[1].new_blocks[0], copy, 3),) if moves else (),
                work=(
                    driver.work(0, [], samples=True),
                    driver.work(1, [], samples=True),
                    RowWork(2, 2 + step, 1, replaced=moves, samples=True),
                ),
            )
        )
    for plan in plans:
        executor.submit(plan)
    rows = [executor.collect().rows for _ in plans]
    assert_same([row[0] for row in rows], alone(healthy, sampling_of(0), depth, model))
    for _, second, third in rows:
        assert second.error is not None
        assert third.error is not None
        assert second.token_id is third.token_id is None
    executor.close()


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_with_plans_in_flight_a_refused_plan_costs_its_own_rows_only(depth: int) -> None:
    """Step 0 opens rows 0 and 1; step 1 decodes row 1 and is refused; the plans behind it were made
    before anyone knew, and go on with both."""
    ids = ids_for(6, 9)
    driver = Driver(MODEL)
    executor = ThreadedExecutor(driver.worker, depth=depth)
    for row in (0, 1):
        driver.open(row, sampling_of(row))
    first = [driver.work(row, ids, samples=True) for row in (0, 1)]
    executor.submit(StepPlan(0, opened=driver.take_opened(), work=tuple(first)))
    refused = replace(driver.work(1, [], samples=True), new_blocks=(10_000,))
    driver.open(2, sampling_of(2))
    late = driver.work(2, ids, samples=True)
    results = [executor.collect().rows[0]]
    executor.submit(StepPlan(1, opened=driver.take_opened(), work=(refused, late)))
    for step in range(2, depth + 1):
        work = tuple(driver.work(row, [], samples=True) for row in (0, 1, 2))
        executor.submit(StepPlan(step, work=work))
    with pytest.raises(StepFailed, match=r"step 1: new_blocks\[0\] must be in"):
        executor.collect()
    for _ in range(2, depth + 1):
        row, *failed = executor.collect().rows
        results.append(row)
        assert [r.error for r in failed] == ["the row failed in an earlier step"] * 2
    assert_same(results, alone(ids, sampling_of(0), depth))
    executor.close()


def test_samples_of_other_indices_part() -> None:
    """Another seed, another answer: the rows compared above do not agree by being constant."""
    ids = ids_for(6, 9)
    tokens = [[row.token_id for row in alone(ids, sampling_of(i), 8)] for i in range(3)]
    assert len(np.unique(np.array(tokens), axis=0)) == 3
