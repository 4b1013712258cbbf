# SPDX-License-Identifier: Apache-2.0
"""Moving the tables of whole groups between device and swap tier, each block once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from octavo.cache.block_pool import BlockPool
from octavo.cache.block_table import BlockTable, SwappedBlock, SwappedTable
from octavo.cache.pins import Pins
from octavo.cache.results import AllocStatus, Moves
from octavo.cache.swap_pool import SwapPool
from octavo.types.errors import CorruptState


class Swapper:
    """The tables of swapped sequences, and the moves that make and end them.

    Sharing is kept: a block goes through a transfer once for all its owners. One that a sequence
    outside the swapped ones still uses stays on the device, and the swapped tables keep their
    references to it (a *resident*); it follows at the next swap-out after its last user has left
    or been swapped. Every call is all or nothing and costs O(blocks of the sequences named).
    """

    def __init__(
        self, device: BlockPool, swap: SwapPool, block_size: int, *, num_set_aside: int = 0
    ) -> None:
        """``num_set_aside`` device blocks can be had by nobody."""
        self._num_usable = device.num_blocks - num_set_aside
        self._device = device
        self._swap = swap
        self._block_size = block_size
        self.tables: dict[int, SwappedTable] = {}
        self._with_residents: set[int] = set()
        self._residents: Counter[int] = Counter()  # device block -> swapped entries naming it

    def swap_out(self, tables: dict[int, BlockTable]) -> Moves | None:
        """Take over these sequences' tables; None when the swap pool lacks room."""
        named = Counter(block_id for table in tables.values() for block_id in table.ids)
        named.update(self._residents)
        movable = {
            block_id: count
            for block_id, count in named.items()
            if self._device.ref_count(block_id) == count
        }
        target = self._reserve(movable)
        if target is None:
            return None
        for seq_id, table in tables.items():
            self.tables[seq_id] = SwappedTable(table)
            self._residents.update(table.ids)
            self._with_residents.add(seq_id)
        pairs = tuple(
            (block_id, swap_block)
            for block_id, swap_block in target.items()
            if self._swap.copy_of(block_id) is None
        )
        self._depart(movable, target, pairs)
        return Moves(pairs, len(movable) - len(pairs))

    def _reserve(self, movable: dict[int, int]) -> dict[int, int] | None:
        """A swap block for each device block, with as many references; clean copies serve again."""
        pool = self._swap.pool
        clean = {}
        for block_id in movable:
            copy = self._swap.copy_of(block_id)
            if copy is not None:
                clean[block_id] = copy
        num_cached = sum(pool.is_cached(copy) for copy in clean.values())
        if len(movable) - len(clean) > pool.num_available - num_cached:
            return None
        for block_id, copy in clean.items():
            pool.acquire([copy] * movable[block_id])
        fresh = pool.take(len(movable) - len(clean))
        assert fresh is not None
        target = dict(clean)
        for block_id, copy in zip((b for b in movable if b not in clean), fresh, strict=True):
            pool.share([copy] * (movable[block_id] - 1))
            target[block_id] = copy
        return target

    def _depart(
        self,
        movable: dict[int, int],
        target: dict[int, int],
        pairs: tuple[tuple[int, int], ...],
    ) -> None:
        for block_id, swap_block in pairs:
            self._swap.link(block_id, swap_block)
            self._device.use([block_id])
            self._swap.pool.use([swap_block])
        for seq_id in list(self._with_residents):
            table = self.tables[seq_id]
            table.blocks = [
                SwappedBlock(target[block.block_id], False)
                if block.on_device and block.block_id in target
                else block
                for block in table.blocks
            ]
            if not any(block.on_device for block in table.blocks):
                self._with_residents.remove(seq_id)
        for block_id in movable:
            del self._residents[block_id]
        self._device.release([b for b, count in movable.items() for _ in range(count)])

    def status(
        self, seq_ids: Sequence[int], pins: Pins, *, num_extra: int, num_kept_back: int
    ) -> AllocStatus:
        """Whether these sequences can come back, with ``num_extra`` blocks to grow into and
        ``num_kept_back`` left over.
        """
        fresh, kept = self._split(self._uses(seq_ids))
        # Swap-ins come first in a step, so it cannot read what it writes itself.
        if any(self._swap.pool.fence(s) > self._swap.pool.submitted_step_id for s in fresh):
            return AllocStatus.LATER
        num_cached = sum(self._device.is_cached(device) for device in kept.values())
        needed = len(fresh) + num_extra
        if needed + num_kept_back <= self._device.num_available - num_cached:
            return AllocStatus.OK
        residents = {
            block.block_id
            for table in map(self.tables.__getitem__, seq_ids)
            for block in table.blocks[table.num_hidden :]
            if block.on_device
        }
        stay = residents | set(kept.values())
        if needed + len(stay) > self._num_usable - pins.num_apart_from(stay):
            return AllocStatus.NEVER
        return AllocStatus.LATER

    def swap_in(
        self, seq_ids: Sequence[int]
    ) -> tuple[tuple[tuple[int, int], ...], dict[int, BlockTable]]:
        """Bring them back; the caller has made sure that there is room."""
        uses = self._uses(seq_ids)
        fresh, device_of = self._split(uses)
        for swap_block, device_block in device_of.items():
            self._device.acquire([device_block] * uses[swap_block])
        taken = self._device.take(len(fresh))
        if taken is None:
            raise CorruptState(f"{len(fresh)} blocks promised to a swap-in are not available")
        pairs = tuple(zip(fresh, taken, strict=True))
        for swap_block, device_block in pairs:
            device_of[swap_block] = device_block
            self._device.share([device_block] * (uses[swap_block] - 1))
            self._device.use([device_block])
            self._swap.link(device_block, swap_block)
            self._swap.pool.use([swap_block])
        back = {seq_id: self._return(seq_id, device_of) for seq_id in seq_ids}
        self._swap.pool.release([s for s, count in uses.items() for _ in range(count)])
        return pairs, back

    def _uses(self, seq_ids: Sequence[int]) -> Counter[int]:
        return Counter(s for seq_id in seq_ids for s in self.tables[seq_id].swap_ids())

    def _split(self, uses: Counter[int]) -> tuple[list[int], dict[int, int]]:
        """Swap blocks that need a transfer, and the others with the device block that has them."""
        fresh, kept = [], {}
        for swap_block in uses:
            device_block = self._swap.device_of(swap_block)
            if device_block is None:
                fresh.append(swap_block)
            else:
                kept[swap_block] = device_block
        return fresh, kept

    def _return(self, seq_id: int, device_of: dict[int, int]) -> BlockTable:
        return self._forget(seq_id).to_table(self._block_size, device_of)

    def free(self, seq_id: int) -> None:
        """A swapped sequence ends: its references in both tiers go."""
        swapped = self._forget(seq_id)
        self._device.release(swapped.device_ids())
        self._swap.pool.release(swapped.swap_ids())

    def _forget(self, seq_id: int) -> SwappedTable:
        swapped = self.tables.pop(seq_id)
        self._with_residents.discard(seq_id)
        self._residents.subtract(swapped.device_ids())
        self._residents += Counter()  # keeps only what is still counted
        return swapped

    def resident_lists(self) -> list[list[int]]:
        """References of swapped sequences to device blocks, for the audit."""
        return [self.tables[seq_id].device_ids() for seq_id in self._with_residents]
