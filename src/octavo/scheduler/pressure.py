# SPDX-License-Identifier: Apache-2.0
"""Hysteresis between running out of blocks and letting others start again."""

from __future__ import annotations

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.queues import RankedQueue

STEPS_AHEAD = 4


class Pressure:
    """Once a running group had to give up blocks, nobody starts until the high mark is reached:
    else the first block that comes back starts somebody who makes the next one run out.

    The high mark is a share of all blocks, and at least the blocks that the running sequences begin
    within the next few steps.
    """

    def __init__(self, blocks: BlockManager, running: RankedQueue, high: float) -> None:
        self._blocks = blocks
        self._running = running
        self._num_high = int(high * blocks.num_blocks)
        self._is_on = False

    def rise(self) -> None:
        """Blocks were taken from a running group for want of free ones."""
        self._is_on = True

    def is_on(self) -> bool:
        """O(running sequences) while it is, O(1) else."""
        if self._is_on:
            mark = max(self._num_high, self._num_soon())
            self._is_on = self._blocks.num_available < mark
        return self._is_on

    def _num_soon(self) -> int:
        """Running sequences that fill their last block soon, and so will want another."""
        size = self._blocks.block_size
        return sum(
            -seq.num_planned % size < STEPS_AHEAD
            for group in self._running
            for seq in group.sequences
            if seq.row is not None
        )
