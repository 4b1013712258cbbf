# SPDX-License-Identifier: Apache-2.0
"""Blocks of the swap tier, and which of them still equal a block on the device."""

from __future__ import annotations

from octavo.cache.block_pool import BlockPool


class SwapPool:
    """A block pool for the swap tier whose retained blocks are *clean copies*.

    A link says that a device block and a swap block hold the same bytes. While it lasts the device
    block is clean: swapping it out again, or in while the device still has it, moves only a table
    entry. Writing to the device block, or giving either block to someone else, breaks the link. A
    linked swap block that nobody references is kept until room is needed.
    """

    def __init__(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks, on_gone=self._unlink_swap)
        self._swap_of: dict[int, int] = {}
        self._device_of: dict[int, int] = {}

    def __len__(self) -> int:
        """Links."""
        return len(self._swap_of)

    def copy_of(self, device_block: int) -> int | None:
        """The swap block with the same content; None when the device block is dirty."""
        return self._swap_of.get(device_block)

    def device_of(self, swap_block: int) -> int | None:
        """The device block with the same content, if there still is one."""
        return self._device_of.get(swap_block)

    def link(self, device_block: int, swap_block: int) -> None:
        """They hold the same bytes once the step being planned has run. Both must be held."""
        self._swap_of[device_block] = swap_block
        self._device_of[swap_block] = device_block
        self.pool.retain(swap_block)

    def mark_dirty(self, device_block: int) -> None:
        """The device block will be written, or its content is gone."""
        swap_block = self._swap_of.pop(device_block, None)
        if swap_block is not None:
            del self._device_of[swap_block]
            self.pool.forget(swap_block)

    def forget_unsettled_copies(self) -> None:
        """A step failed: links made by steps that have not completed are void. O(links)."""
        for device_block, swap_block in list(self._swap_of.items()):
            if not self.pool.is_settled(swap_block):
                self.mark_dirty(device_block)

    def _unlink_swap(self, swap_block: int) -> None:
        device_block = self._device_of.pop(swap_block, None)
        if device_block is not None:
            del self._swap_of[device_block]

    def faults(self) -> list[str]:
        """Every way in which the links disagree with each other and with the pool. O(blocks)."""
        found = [
            f"device block {device} is linked to swap block {swap}, which is linked to"
            f" {self._device_of.get(swap)}"
            for device, swap in self._swap_of.items()
            if self._device_of.get(swap) != device or not self.pool.is_retained(swap)
        ]
        retained = sum(self.pool.is_retained(swap) for swap in range(self.pool.num_blocks))
        if not len(self._swap_of) == len(self._device_of) == retained:
            found.append(
                f"{len(self._swap_of)} device blocks linked, {len(self._device_of)} swap blocks,"
                f" {retained} retained"
            )
        return found
