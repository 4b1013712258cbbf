# SPDX-License-Identifier: Apache-2.0
"""The page table of one sequence."""

from __future__ import annotations


class BlockTable:
    """Where the tokens of one sequence live in the KV pool.

    Position ``p`` is stored in slot ``ids[p // n] * n + p % n``, with ``n = block_size``. Ids are
    only appended while a row is open, so the worker's copy of the table never goes stale. Only
    ``BlockManager`` changes ``ids``; everyone else reads it.
    """

    __slots__ = ("block_size", "ids")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.ids: list[int] = []

    @property
    def num_slots(self) -> int:
        return len(self.ids) * self.block_size

    def slot(self, position: int) -> int:
        """The slot of a position that the table covers; IndexError beyond it."""
        block_idx, offset = divmod(position, self.block_size)
        return self.ids[block_idx] * self.block_size + offset
