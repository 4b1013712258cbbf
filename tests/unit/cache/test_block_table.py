# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.block_table import BlockTable


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
