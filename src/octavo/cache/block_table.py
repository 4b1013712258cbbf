# SPDX-License-Identifier: Apache-2.0
"""The page table of one sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from octavo.cache.prefix_index import Node


class BlockTable:
    """Where the tokens of one sequence live in the KV pool.

    Position ``p`` is stored in slot ``ids[p // n] * n + p % n``, with ``n = block_size``. While a
    row is open ids are appended, or replaced by copy-on-write with the worker being told, so its
    copy of the table never goes stale. Only ``BlockManager`` changes a table; everyone else reads.

    num_tokens   positions that the sequence asked room for; the slots past them are waste
    chain        the index's nodes for the leading blocks that are published, own or older ones
    num_hidden   leading entries that hold the null block: nobody will look at them any more
    publishes    False once its blocks must not be found, whatever else is computed
    """

    __slots__ = ("block_size", "chain", "ids", "num_hidden", "num_tokens", "publishes")

    def __init__(self, block_size: int, *, publishes: bool = True) -> None:
        self.block_size = block_size
        self.ids: list[int] = []
        self.num_tokens = 0
        self.num_hidden = 0
        self.chain: list[Node] = []
        self.publishes = publishes

    @property
    def num_slots(self) -> int:
        return len(self.ids) * self.block_size

    def slot(self, position: int) -> int:
        """The slot of a position that the table covers; IndexError beyond it."""
        block_idx, offset = divmod(position, self.block_size)
        return self.ids[block_idx] * self.block_size + offset

    def copy(self) -> BlockTable:
        """A table of the same blocks; the caller counts the references."""
        table = BlockTable(self.block_size, publishes=self.publishes)
        table.ids = self.ids.copy()
        table.num_tokens = self.num_tokens
        table.num_hidden = self.num_hidden
        table.chain = self.chain.copy()
        return table


class SwappedBlock(NamedTuple):
    """Where one block of a swapped sequence is."""

    block_id: int
    on_device: bool  # it stayed, because a sequence that was not swapped uses it too


class SwappedTable:
    """The table of a sequence that is swapped out: block ids of both tiers."""

    __slots__ = ("blocks", "num_hidden", "num_tokens", "publishes")

    def __init__(self, table: BlockTable) -> None:
        """All of its blocks are still on the device."""
        self.blocks = [SwappedBlock(block_id, True) for block_id in table.ids]
        self.num_tokens = table.num_tokens
        self.num_hidden = table.num_hidden  # null blocks stay on the device for ever
        self.publishes = table.publishes

    def to_table(self, block_size: int, device_of: Mapping[int, int]) -> BlockTable:
        """The table that it becomes when swap blocks are moved as ``device_of`` says."""
        table = BlockTable(block_size, publishes=self.publishes)
        table.ids = [
            block.block_id if block.on_device else device_of[block.block_id]
            for block in self.blocks
        ]
        table.num_tokens = self.num_tokens
        table.num_hidden = self.num_hidden
        return table

    def device_ids(self) -> list[int]:
        return [block.block_id for block in self.blocks if block.on_device]

    def swap_ids(self) -> list[int]:
        return [block.block_id for block in self.blocks if not block.on_device]
