# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.block_table import BlockTable, SwappedBlock, SwappedTable


def test_a_position_is_found_through_the_table() -> None:
    table = BlockTable(4)
    table.ids += [7, 2]
    assert table.num_slots == 8
    assert [table.slot(position) for position in (0, 3, 4, 7)] == [28, 31, 8, 11]


def test_a_position_beyond_the_table_is_an_error() -> None:
    table = BlockTable(4)
    table.ids.append(0)
    with pytest.raises(IndexError):
        table.slot(4)


def test_a_copy_shares_nothing_but_the_blocks() -> None:
    table = BlockTable(4, publishes=False)
    table.ids.append(3)
    table.num_tokens = 2
    copy = table.copy()
    copy.ids.append(5)
    assert (table.ids, copy.ids) == ([3], [3, 5])
    assert (copy.num_tokens, copy.publishes) == (2, False)


def test_a_swapped_table_knows_the_tier_of_each_block() -> None:
    before = BlockTable(4)
    before.ids, before.num_tokens, before.num_hidden = [0, 4, 7], 10, 1
    table = SwappedTable(before)
    assert (table.device_ids(), table.swap_ids()) == ([0, 4, 7], [])
    table.blocks[2] = SwappedBlock(1, False)
    assert (table.device_ids(), table.swap_ids()) == ([0, 4], [1])
    after = table.to_table(4, {1: 5})
    assert (after.ids, after.num_tokens, after.num_hidden) == ([0, 4, 5], 10, 1)
