# SPDX-License-Identifier: Apache-2.0
"""Which memory holds whose tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from octavo.cache.block_pool import BlockPool
from octavo.cache.block_table import BlockTable
from octavo.types.errors import CorruptState


class AllocStatus(Enum):
    """Whether a sequence can have the blocks that it needs."""

    OK = "ok"
    LATER = "later"  # when others have given some back
    NEVER = "never"  # not even from an empty pool


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """Blocks by place; the three add up to ``num_blocks``."""

    num_blocks: int
    num_free: int
    num_limbo: int
    num_referenced: int


class BlockManager:
    """A block table per sequence, grown on demand, freed as a whole.

    Every call is all or nothing. Costs are O(blocks moved), except ``check``.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be >= 1, got {block_size}")
        self.block_size = block_size
        self._pool = BlockPool(num_blocks)
        self._tables: dict[int, BlockTable] = {}

    @property
    def num_slots(self) -> int:
        """Tokens that an empty pool holds."""
        return self._pool.num_blocks * self.block_size

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def can_allocate(self, num_tokens: int) -> AllocStatus:
        """Whether a new sequence of ``num_tokens`` could be held, now or ever."""
        needed = self.num_blocks_for(num_tokens)
        if needed <= self._pool.num_free:
            return AllocStatus.OK
        return AllocStatus.LATER if needed <= self._pool.num_blocks else AllocStatus.NEVER

    def grow(self, seq_id: int, num_tokens: int) -> tuple[int, ...] | None:
        """Extend a sequence's table to hold ``num_tokens``; the first call makes the table.

        Returns the ids appended, often none, or None, having changed nothing, when too few are
        free.
        """
        table = self._tables.get(seq_id)
        num_held = len(table.ids) if table is not None else 0
        if num_tokens <= num_held * self.block_size:
            return ()
        taken = self._pool.take(self.num_blocks_for(num_tokens) - num_held)
        if taken is None:
            return None
        if table is None:
            table = self._tables[seq_id] = BlockTable(self.block_size)
        table.ids += taken
        return tuple(taken)

    def arriving_covers(self, seq_id: int, num_tokens: int) -> bool:
        """Would ``grow`` succeed once the steps in flight have completed, with nobody preempted?"""
        table = self._tables.get(seq_id)
        num_held = len(table.ids) if table is not None else 0
        needed = self.num_blocks_for(num_tokens) - num_held
        return needed <= self._pool.num_free + self._pool.num_limbo

    def free(self, seq_id: int) -> None:
        """Give up a sequence's blocks and its table. A sequence without a table has nothing to
        give.
        """
        table = self._tables.pop(seq_id, None)
        if table is not None:
            self._pool.release(table.ids)

    def table(self, seq_id: int) -> BlockTable | None:
        """A sequence's table, to read; None when it holds nothing."""
        return self._tables.get(seq_id)

    def step_submitted(self, step_id: int) -> None:
        self._pool.step_submitted(step_id)

    def step_completed(self, step_id: int) -> None:
        self._pool.step_completed(step_id)

    def usage(self) -> BlockUsage:
        pool = self._pool
        return BlockUsage(pool.num_blocks, pool.num_free, pool.num_limbo, pool.num_referenced)

    def check(self, seq_ids: set[int]) -> None:
        """Raise ``CorruptState`` unless exactly ``seq_ids`` hold blocks and the pool's account
        balances.
        """
        if self._tables.keys() != seq_ids:
            raise CorruptState(
                f"sequences {sorted(self._tables)} hold blocks, {sorted(seq_ids)} should"
            )
        self._pool.check(table.ids for table in self._tables.values())
