# SPDX-License-Identifier: Apache-2.0
"""The random machine for a model that sees only so far back: what is behind the window is given up,
and what is still seen is what the sequence would have computed itself."""

from __future__ import annotations

import pytest
from hypothesis import Phase

from cache_machine import BLOCK_SIZE, NUM_BLOCKS, NUM_SWAP_BLOCKS, BlockManagerMachine
from octavo.cache.block_manager import BlockManager
from octavo.cache.window import Window
from transitions import run_machine

WINDOW = 7


class WindowMachine(BlockManagerMachine):
    """After each step, every sequence that took part gives up what it will not see again."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = self.blocks(
            NUM_BLOCKS, BLOCK_SIZE, num_swap_blocks=NUM_SWAP_BLOCKS, watermark=0.1, window=WINDOW
        )
        self.memory.window = WINDOW
        (self.null,) = {0, *range(NUM_BLOCKS)} - {
            record.block_id for record in self.manager.dump() if not record.is_null
        }
        self.nulls.add(self.null)

    def num_hidden(self, num_tokens: int) -> int:
        """By looking: the first block with a position that ``num_tokens`` or a later one sees."""
        num_hidden = 0
        while (num_hidden + 1) * BLOCK_SIZE <= num_tokens - WINDOW + 1:
            num_hidden += 1
        return num_hidden

    def expect_published(self, seq_id: int) -> None:
        held = self.manager.table(seq_id)
        if held is not None and held.num_hidden and not held.publishes:
            self.frozen.add(seq_id)  # what its next block would hang on has been evicted
        super().expect_published(seq_id)
        if held is not None:
            self.slide(seq_id)

    def slide(self, seq_id: int) -> None:
        seq, before = self.seqs[seq_id], self.tables[seq_id]
        num_given_up = self.manager.slide(seq_id, seq.num_committed)
        held = self.manager.table(seq_id)
        assert held is not None
        after = self.tables[seq_id] = list(held.ids)
        hidden = self.num_hidden(seq.num_committed)
        num_nulls = after.count(self.null)
        assert after == [self.null] * num_nulls + before[num_nulls:]
        assert num_given_up == num_nulls - before.count(self.null)
        is_waiting = held.publishes and len(held.chain) < hidden
        # A table that was cut since may have given up more than this position asks for.
        assert num_nulls >= (len(held.chain) if is_waiting else hidden)
        assert self.manager.slide(seq_id, seq.num_committed) == 0


def test_what_is_still_seen_is_there() -> None:
    run_machine(WindowMachine, 10_000)


class TooFar(Window):
    """Hides a block that is still seen."""

    def num_hidden(self, num_tokens: int) -> int:
        return super().num_hidden(num_tokens + BLOCK_SIZE)


class ForgetfulBlocks(BlockManager):
    def slide(self, seq_id: int, num_computed: int) -> int:
        self.window = TooFar(WINDOW, BLOCK_SIZE)
        return super().slide(seq_id, num_computed)


class PlantedMachine(WindowMachine):
    blocks = ForgetfulBlocks

    def slide(self, seq_id: int) -> None:
        self.manager.slide(seq_id, self.seqs[seq_id].num_committed)
        held = self.manager.table(seq_id)
        assert held is not None
        self.tables[seq_id] = list(held.ids)


def test_a_window_that_is_taken_too_small_is_seen() -> None:
    with pytest.raises(AssertionError):
        run_machine(PlantedMachine, 20_000, phases=[Phase.generate])
