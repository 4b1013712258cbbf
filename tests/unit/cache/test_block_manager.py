# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.block_manager import AllocStatus, BlockManager
from octavo.types.errors import CorruptState


def test_a_table_grows_only_when_its_last_block_is_full() -> None:
    manager = BlockManager(num_blocks=4, block_size=8)
    assert manager.grow(1, 8) == (0,)
    assert manager.grow(1, 8) == ()
    assert manager.grow(1, 9) == (1,)
    assert manager.grow(1, 16) == ()
    table = manager.table(1)
    assert table is not None
    assert table.ids == [0, 1]
    manager.check({1})


@pytest.mark.parametrize("num_free", [0, 1, 2])
def test_growing_is_transactional_wherever_it_fails(num_free: int) -> None:
    manager = BlockManager(num_blocks=4, block_size=8)
    manager.grow(1, 8)
    manager.grow(2, (3 - num_free) * 8)
    before = manager.usage()
    assert manager.grow(1, (2 + num_free) * 8) is None  # one block more than there is
    assert manager.usage() == before
    table = manager.table(1)
    assert table is not None
    assert table.ids == [0]
    assert manager.grow(3, (1 + num_free) * 8) is None
    assert manager.table(3) is None
    manager.check({1, 2})


def test_ok_later_never() -> None:
    manager = BlockManager(num_blocks=4, block_size=8)
    assert manager.can_allocate(32) is AllocStatus.OK
    assert manager.can_allocate(33) is AllocStatus.NEVER
    manager.grow(1, 1)
    assert manager.can_allocate(24) is AllocStatus.OK
    assert manager.can_allocate(25) is AllocStatus.LATER
    assert manager.num_slots == 32


def test_freed_blocks_return_with_the_fence() -> None:
    manager = BlockManager(num_blocks=2, block_size=8)
    manager.grow(1, 16)
    manager.step_submitted(1)
    manager.free(1)
    assert manager.grow(2, 1) is None
    assert not manager.arriving_covers(2, 17)
    assert manager.arriving_covers(2, 16)
    manager.step_completed(1)
    assert manager.grow(2, 1) is not None
    manager.free(2)
    manager.free(2)  # has nothing: no error
    assert manager.usage().num_free == 2
    manager.check(set())


def test_check_finds_a_sequence_that_kept_its_blocks() -> None:
    manager = BlockManager(num_blocks=2, block_size=8)
    manager.grow(5, 1)
    with pytest.raises(CorruptState, match=r"sequences \[5\] hold blocks, \[\] should"):
        manager.check(set())


def test_check_finds_a_table_that_lost_a_block() -> None:
    manager = BlockManager(num_blocks=2, block_size=8)
    manager.grow(5, 16)
    table = manager.table(5)
    assert table is not None
    table.ids.pop()
    with pytest.raises(CorruptState, match="block 1 has 1 references, tables name it 0 times"):
        manager.check({5})


def test_an_impossible_block_size_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        BlockManager(num_blocks=1, block_size=0)
