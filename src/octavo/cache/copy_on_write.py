# SPDX-License-Identifier: Apache-2.0
"""How a table gets slots to write to that nobody else sees."""

from __future__ import annotations

from octavo.cache.block_pool import BlockPool
from octavo.cache.block_table import BlockTable
from octavo.cache.results import Growth
from octavo.cache.step_order import StepOrder
from octavo.cache.swap_pool import SwapPool

NOTHING = Growth((), (), ())


class CopyOnWrite:
    """Appends blocks to a table, and replaces those of its blocks that others see too: sequences,
    pins, or the prefix index. Only filled slots are copied; the last owner writes in place.
    """

    def __init__(self, pool: BlockPool, swap: SwapPool, order: StepOrder, block_size: int) -> None:
        self._pool = pool
        self._swap = swap
        self._order = order
        self._block_size = block_size

    def num_needed(self, table: BlockTable | None, num_tokens: int, write_from: int | None) -> int:
        """Exactly the blocks that ``grow`` would take now; ``write_from`` None: only appends."""
        ids = table.ids if table is not None else []
        wanted = -(-num_tokens // self._block_size)
        needed = max(0, wanted - len(ids))
        if write_from is not None:
            written = ids[write_from // self._block_size : wanted]
            needed += sum(self._is_seen_by_others(block_id) for block_id in written)
        return needed

    def grow(
        self, table: BlockTable, num_tokens: int, write_from: int
    ) -> tuple[Growth, list[int]] | None:
        """Make positions [``write_from``, ``num_tokens``) writable by this table's sequence alone.

        Returns what changed, and the blocks that it gave up; None, with nothing changed, when
        blocks lack.
        """
        num_held = len(table.ids)
        num_wanted = -(-num_tokens // self._block_size)
        written = range(write_from // self._block_size, num_wanted)
        shared = [i for i in written if i < num_held and self._is_seen_by_others(table.ids[i])]
        growth, given_up = NOTHING, list[int]()
        if shared or num_wanted > num_held:
            taken = self._pool.take(len(shared) + max(0, num_wanted - num_held))
            if taken is None:
                return None
            growth, given_up = self._apply(table, taken, shared, write_from)
        table.num_tokens = max(table.num_tokens, num_tokens)
        for idx in written:
            self._swap.mark_dirty(table.ids[idx])
            self._order.compute(table.ids[idx], max(0, write_from - idx * self._block_size))
        return growth, given_up

    def _is_seen_by_others(self, block_id: int) -> bool:
        return self._pool.ref_count(block_id) > 1 or self._pool.is_retained(block_id)

    def _apply(
        self, table: BlockTable, taken: list[int], shared: list[int], write_from: int
    ) -> tuple[Growth, list[int]]:
        new_blocks = taken[len(shared) :]
        replaced = tuple(zip(shared, taken, strict=False))
        copies = []
        given_up = []
        for idx, block_id in replaced:
            old = table.ids[idx]
            num_filled = write_from - idx * self._block_size
            if num_filled > 0:  # a block that starts at or after write_from has nothing to keep
                self._pool.use((old, block_id))
                copies.append(self._order.copy(old, block_id, num_filled))
            table.ids[idx] = block_id
            given_up.append(old)
        self._pool.release(given_up)
        table.ids += new_blocks
        return Growth(tuple(new_blocks), replaced, tuple(copies)), given_up
