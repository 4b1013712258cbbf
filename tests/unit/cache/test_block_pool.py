# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest

from octavo.cache.block_pool import BlockPool, Place
from octavo.types.errors import CorruptState


def counts(pool: BlockPool) -> tuple[int, int, int]:
    return pool.num_free, pool.num_limbo, pool.num_referenced


def test_taking_is_all_or_nothing() -> None:
    pool = BlockPool(3)
    taken = pool.take(2)
    assert taken == [0, 1]
    assert pool.take(2) is None
    assert counts(pool) == (1, 0, 2)
    assert pool.take(0) == []
    assert pool.take(1) == [2]
    pool.check([[0, 1], [2]])


def test_a_shared_block_is_free_when_its_last_owner_lets_go() -> None:
    pool = BlockPool(2)
    taken = pool.take(2)
    assert taken is not None
    pool.share(taken[:1])
    pool.check([taken, taken[:1]])
    pool.release(taken)
    assert counts(pool) == (1, 0, 1)
    assert pool.ref_count(0) == 1
    pool.release([0])
    assert counts(pool) == (2, 0, 0)


def test_the_block_freed_last_is_handed_out_first() -> None:
    pool = BlockPool(4)
    taken = pool.take(4)
    assert taken is not None
    pool.release([taken[2]])
    pool.release([taken[0]])
    assert pool.take(2) == [0, 2]


def test_a_sequences_first_block_is_on_top_after_release() -> None:
    pool = BlockPool(3)
    taken = pool.take(3)
    assert taken is not None
    pool.release(taken)
    assert pool.take(1) == [0]


def test_a_block_waits_in_limbo_for_the_steps_that_could_touch_it() -> None:
    pool = BlockPool(3)
    taken = pool.take(3)
    pool.step_submitted(1)
    pool.step_submitted(2)
    assert taken is not None
    pool.release(taken[:1])
    assert counts(pool) == (0, 1, 2)
    assert pool.take(1) is None
    pool.step_completed(1)
    assert counts(pool) == (0, 1, 2)  # step 2 was submitted while the block was held
    pool.step_completed(2)
    assert counts(pool) == (1, 0, 2)
    pool.release(taken[1:])  # nothing in flight: at once
    assert counts(pool) == (3, 0, 0)


def test_a_block_released_later_has_a_later_fence() -> None:
    pool = BlockPool(2)
    taken = pool.take(2)
    assert taken is not None
    pool.step_submitted(1)
    pool.release(taken[:1])
    pool.step_submitted(2)
    pool.release(taken[1:])
    pool.step_completed(1)
    assert counts(pool) == (1, 1, 0)
    pool.check([])
    pool.step_completed(2)
    assert counts(pool) == (2, 0, 0)


def test_completing_a_step_falls_every_earlier_fence_too() -> None:
    pool = BlockPool(2)
    taken = pool.take(2)
    assert taken is not None
    pool.step_submitted(1)
    pool.release(taken)
    pool.step_submitted(2)
    pool.step_completed(2)
    assert counts(pool) == (2, 0, 0)


def test_double_free_and_sharing_what_nobody_holds_are_bugs() -> None:
    pool = BlockPool(2)
    taken = pool.take(1)
    assert taken is not None
    pool.release(taken)
    with pytest.raises(CorruptState, match="block 0 is released"):
        pool.release(taken)
    with pytest.raises(CorruptState, match="block 1 is shared"):
        pool.share([1])


@pytest.mark.parametrize("completed", [0, 2])
def test_a_step_completes_once_and_after_it_was_submitted(completed: int) -> None:
    pool = BlockPool(1)
    pool.step_submitted(1)
    with pytest.raises(CorruptState, match=f"step {completed} completed"):
        pool.step_completed(completed)
    pool.step_completed(1)
    with pytest.raises(CorruptState, match="step 1 completed"):
        pool.step_completed(1)
    with pytest.raises(CorruptState, match="step 1 submitted after step 1"):
        pool.step_submitted(1)


def test_a_pool_may_be_empty_but_not_less() -> None:
    pool = BlockPool(0)  # no swap tier
    assert pool.take(0) == []
    assert pool.take(1) is None
    pool.check([])
    with pytest.raises(ValueError, match="got -1"):
        BlockPool(-1)


def taken_from(pool: BlockPool, count: int) -> list[int]:
    taken = pool.take(count)
    assert taken is not None
    return taken


def test_retained_blocks_become_cached_and_are_evicted_only_when_nothing_is_free() -> None:
    gone: list[int] = []
    pool = BlockPool(3, on_gone=gone.append)
    a, b = taken_from(pool, 2)
    pool.retain(a)
    pool.release([a, b])
    assert (pool.place(a), pool.place(b)) == (Place.CACHED, Place.FREE)
    assert gone == [b]
    assert pool.num_available == 3
    assert a not in taken_from(pool, 2)
    assert taken_from(pool, 1) == [a]
    assert gone == [b, a]
    assert not pool.is_retained(a)


def test_what_is_evicted_is_handed_out_and_not_what_becomes_free_with_it() -> None:
    pool = BlockPool(3, on_gone=lambda block_id: pool.forget(2) if block_id == 1 else None)
    taken = taken_from(pool, 3)
    for block_id in taken:
        pool.retain(block_id)
    pool.release([2])
    pool.release([1])
    pool.acquire([2])  # so that 1 is the older one
    pool.release([2])
    assert pool.take(1) == [1]
    assert (pool.num_free, pool.num_cached) == (1, 0)
    assert pool.take(1) == [2]


def test_cached_content_is_acquired_from_the_cache_and_from_limbo() -> None:
    pool = BlockPool(2)
    (a,) = taken_from(pool, 1)
    pool.retain(a)
    pool.release([a])
    pool.acquire([a])
    assert pool.place(a) is Place.REFERENCED
    pool.step_submitted(1)
    pool.release([a])
    assert pool.place(a) is Place.LIMBO
    pool.acquire([a])
    pool.acquire([a])
    assert (pool.ref_count(a), pool.num_limbo, pool.num_shared) == (2, 0, 1)
    pool.step_completed(1)
    pool.release([a, a])
    assert pool.place(a) is Place.CACHED
    with pytest.raises(CorruptState, match="block 1 is acquired but its content is gone"):
        pool.acquire([1])
    with pytest.raises(CorruptState, match="block 1 is retained but nobody holds it"):
        pool.retain(1)


def test_forgotten_content_frees_the_block_unless_somebody_holds_it() -> None:
    gone: list[int] = []
    pool = BlockPool(2, on_gone=gone.append)
    a, b = taken_from(pool, 2)
    pool.retain(a)
    pool.retain(b)
    pool.release([a])
    pool.forget(a)
    pool.forget(b)
    assert (pool.place(a), pool.place(b), gone) == (Place.FREE, Place.REFERENCED, [a])
    pool.release([b])
    assert pool.place(b) is Place.FREE
    pool.check([])


def test_a_block_used_by_the_step_being_planned_waits_for_it() -> None:
    """It is given up while nothing is in flight, but the plan that names it is still to come."""
    pool = BlockPool(1)
    taken = taken_from(pool, 1)
    pool.use(taken)
    pool.release(taken)
    assert counts(pool) == (0, 1, 0)
    pool.step_submitted(1)
    assert counts(pool) == (0, 1, 0)
    pool.step_completed(1)
    assert counts(pool) == (1, 0, 0)


def test_a_count_found_too_high_can_be_repaired_but_not_one_too_low() -> None:
    pool = BlockPool(2)
    taken = taken_from(pool, 1)
    pool.share(taken)
    pool.repair(taken[0], 1)
    pool.check([taken])
    with pytest.raises(CorruptState, match="fewer references"):
        pool.repair(taken[0], 2)


class TestCheckHasTeeth:
    def test_a_reference_too_few(self) -> None:
        pool = BlockPool(2)
        taken = pool.take(1)
        assert taken is not None
        with pytest.raises(CorruptState, match="block 0 has 1 references, tables name it 2 times"):
            pool.check([taken, taken])

    def test_a_leaked_block(self) -> None:
        pool = BlockPool(2)
        pool._free.pop()
        with pytest.raises(CorruptState, match=r"1 free \+ 0 cached \+ 0 limbo"):
            pool.check([])

    def test_a_block_that_is_free_twice(self) -> None:
        pool = BlockPool(2)
        pool._free = [1, 1]
        with pytest.raises(CorruptState, match="1 of them different, of 2"):
            pool.check([])

    def test_a_free_block_with_an_owner_is_not_handed_out(self) -> None:
        pool = BlockPool(2)
        pool._refs[0] = 1
        with pytest.raises(CorruptState, match="block 0 is free but has 1"):
            pool.take(1)

    def test_a_count_of_references_that_drifted(self) -> None:
        pool = BlockPool(2)
        pool._num_references = 1
        with pytest.raises(CorruptState, match="0 shared blocks and 0 references, counted 0 and 1"):
            pool.check([])

    def test_free_blocks_are_not_findable_and_cached_ones_are(self) -> None:
        pool = BlockPool(2)
        pool._retained[0] = 1
        pool._free.remove(1)
        pool._cached.add(1)
        assert pool.faults([]) == [
            "block 1 is cached but not retained",
            "block 0 is free but retained",
        ]

    def test_a_limbo_count_that_drifted(self) -> None:
        pool = BlockPool(2)
        pool._num_limbo = 1
        with pytest.raises(CorruptState):
            pool.check([])


@pytest.mark.parametrize("seed", range(10))
def test_the_account_balances_after_any_history(seed: int) -> None:
    rng = random.Random(seed)
    pool = BlockPool(12)
    tables: list[list[int]] = []
    submitted = completed = 0
    for _ in range(400):
        match rng.randrange(5):
            case 0:
                free_before = pool.num_free
                count = rng.randrange(5)
                taken = pool.take(count)
                assert (taken is None) == (count > free_before)
                if taken:
                    tables.append(taken)
            case 1 if tables:
                table = list(rng.choice(tables))
                pool.share(table)
                tables.append(table)
            case 2 if tables:
                pool.release(tables.pop(rng.randrange(len(tables))))
            case 3:
                submitted += 1
                pool.step_submitted(submitted)
            case 4 if completed < submitted:
                completed = rng.randint(completed + 1, submitted)
                pool.step_completed(completed)
        pool.check(tables)
        assert sum(counts(pool)) == 12
        assert pool.num_limbo == 0 or completed < submitted
