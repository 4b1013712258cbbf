# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest

from octavo.cache.block_pool import BlockPool
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


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        BlockPool(0)


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
        with pytest.raises(CorruptState, match=r"1 free \+ 0 limbo \+ 0 referenced"):
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
