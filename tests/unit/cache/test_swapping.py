# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.block_manager import AllocStatus, BlockManager
from octavo.cache.cache_key import CacheKey

KEY = CacheKey()


class Bench:
    """A block manager and the number of the step being planned."""

    def __init__(self, num_blocks: int = 8, num_swap_blocks: int = 8) -> None:
        self.manager = BlockManager(num_blocks, 4, num_swap_blocks=num_swap_blocks, watermark=0.0)
        self.step_id = 0

    def step(self) -> None:
        self.step_id += 1
        self.manager.step_submitted(self.step_id)
        self.manager.step_completed(self.step_id)

    def start(self, seq_id: int, num_tokens: int, *, publishes: bool = False) -> list[int]:
        """A sequence with tokens of its own, computed."""
        tokens = list(range(100 * seq_id, 100 * seq_id + num_tokens))
        assert self.manager.admit(seq_id, KEY, tokens, num_tokens=num_tokens) is not None
        self.step()
        if publishes:
            self.manager.publish(seq_id, KEY, tokens, num_tokens)
        return self.ids(seq_id)

    def ids(self, seq_id: int) -> list[int]:
        table = self.manager.table(seq_id)
        assert table is not None
        return table.ids

    def swap_out(self, *seq_ids: int) -> tuple[list[int], int]:
        """Device blocks that moved, and how many were clean."""
        moves = self.manager.plan_swap_out(seq_ids)
        assert moves is not None
        self.step()
        return [device for device, _ in moves.pairs], moves.num_clean

    def swap_in(self, *seq_ids: int) -> int:
        """How many blocks had to move."""
        answer = self.manager.swap_in(seq_ids)
        assert answer is not None
        self.step()
        assert {i: list(blocks) for i, blocks in answer.tables.items()} == {
            i: self.ids(i) for i in seq_ids
        }
        return len(answer.pairs)


def test_a_shared_block_moves_once_and_stays_shared() -> None:
    bench = Bench()
    blocks = bench.start(1, 6)
    bench.manager.fork(1, 2)
    bench.manager.grow(2, 7, write_from=6)
    bench.step()
    tail = bench.ids(2)[1]
    assert bench.swap_out(1, 2) == ([*blocks, tail], 0)
    usage = bench.manager.usage()
    assert (usage.num_free, usage.num_swap_referenced) == (8, 3)
    assert bench.swap_in(1, 2) == 3
    assert bench.ids(1)[0] == bench.ids(2)[0]
    assert bench.ids(1)[1] != bench.ids(2)[1]
    bench.manager.check({1, 2})


def test_a_block_that_somebody_outside_uses_stays_until_he_leaves() -> None:
    bench = Bench()
    shared, own = bench.start(1, 6)
    bench.manager.fork(1, 2)
    bench.manager.grow(1, 7, write_from=6)
    bench.step()
    assert bench.swap_out(2) == ([own], 0)  # the tail is 2's alone by now
    assert bench.manager.explain(shared).owners == (1, 2)
    bench.manager.free(1)
    assert bench.manager.usage().num_referenced == 1  # held for 2, which is swapped
    assert bench.swap_out() == ([shared], 0)
    assert bench.manager.usage().num_referenced == 0
    assert bench.swap_in(2) == 2
    bench.manager.check({2})


def test_groups_swapped_one_after_the_other_share_their_blocks_again() -> None:
    bench = Bench()
    (shared,) = bench.start(1, 4)
    bench.manager.fork(1, 2)
    assert bench.swap_out(1) == ([], 0)
    assert bench.swap_out(2) == ([shared], 0)
    assert bench.swap_in(1) == 1
    assert bench.swap_in(2) == 0  # 1 has it on the device
    assert bench.ids(1) == bench.ids(2)
    bench.manager.check({1, 2})


def test_a_clean_block_swaps_out_by_its_table_entry_alone() -> None:
    bench = Bench()
    bench.start(1, 12)
    assert len(bench.swap_out(1)[0]) == 3
    assert bench.swap_in(1) == 3
    assert bench.swap_out(1) == ([], 3)
    bench.swap_in(1)
    tail = bench.ids(1)[2]
    bench.manager.truncate(1, 11)
    bench.manager.grow(1, 12, write_from=11)  # dirty now
    bench.step()
    assert bench.swap_out(1) == ([tail], 2)
    bench.manager.check({1})


def test_what_is_still_cached_on_the_device_needs_no_transfer_back() -> None:
    bench = Bench()
    blocks = bench.start(1, 12, publishes=True)
    assert len(bench.swap_out(1)[0]) == 3
    assert bench.manager.usage().num_cached == 3
    bench.start(2, 24)  # six of eight blocks: one of the three is evicted
    bench.manager.free(2)
    assert bench.swap_in(1) == 1
    assert bench.ids(1)[:2] == blocks[:2]
    bench.manager.check({1})


def test_a_copy_gives_way_when_the_swap_tier_is_full() -> None:
    bench = Bench(num_swap_blocks=3)
    bench.start(1, 12)
    bench.swap_out(1)
    bench.swap_in(1)
    assert bench.manager.usage().num_swap_cached == 3
    bench.start(2, 8)
    assert len(bench.swap_out(2)[0]) == 2
    assert bench.manager.usage().num_swap_cached == 1
    assert bench.manager.plan_swap_out([1]) is None  # three blocks, one copy, and no room
    bench.manager.check({1, 2})


@pytest.mark.parametrize("num_swap_blocks", range(4))
def test_swapping_out_is_transactional_wherever_it_fails(num_swap_blocks: int) -> None:
    bench = Bench(num_swap_blocks=num_swap_blocks)
    bench.start(1, 12)
    bench.start(2, 4)
    before = bench.manager.usage()
    assert bench.manager.plan_swap_out([1, 2]) is None
    assert bench.manager.usage() == before
    bench.manager.check({1, 2})


@pytest.mark.parametrize("num_free", range(3))
def test_swapping_in_is_transactional_wherever_it_fails(num_free: int) -> None:
    bench = Bench()
    bench.start(1, 12)
    bench.swap_out(1)
    bench.start(2, 4 * (8 - num_free))
    before = bench.manager.usage()
    assert bench.manager.swap_in_status([1]) is AllocStatus.LATER
    assert bench.manager.swap_in([1]) is None
    assert bench.manager.usage() == before
    bench.manager.check({1, 2})
    bench.manager.free(2)
    assert bench.swap_in(1) == 3


def test_coming_back_asks_for_room_to_grow_and_for_the_watermark() -> None:
    bench = Bench()
    bench.manager.num_watermark_blocks = 2
    bench.start(1, 12)
    bench.swap_out(1)
    assert bench.manager.swap_in_status([1], extra_blocks=3) is AllocStatus.OK
    assert bench.manager.swap_in_status([1], extra_blocks=4) is AllocStatus.LATER
    relaxed = bench.manager.swap_in_status([1], extra_blocks=5, ignore_watermark=True)
    assert relaxed is AllocStatus.OK
    assert bench.manager.swap_in_status([1], extra_blocks=6) is AllocStatus.NEVER


def test_a_step_cannot_bring_back_what_it_sends_away() -> None:
    """Swap-ins come first in a step, so the block would be read before it is written."""
    bench = Bench()
    bench.start(1, 4)
    assert bench.manager.plan_swap_out([1]) is not None
    assert bench.manager.swap_in_status([1]) is AllocStatus.LATER
    bench.step()
    assert bench.swap_in(1) == 1


def test_a_step_cannot_send_away_what_it_copies() -> None:
    bench = Bench()
    bench.start(1, 6)
    bench.manager.fork(1, 2)
    bench.manager.grow(2, 7, write_from=6)
    assert bench.manager.plan_swap_out([2]) is None
    bench.step()
    assert bench.manager.plan_swap_out([2]) is not None


def test_blocks_that_move_wait_for_the_step_that_moves_them() -> None:
    bench = Bench(num_blocks=2)
    bench.start(1, 8)
    assert bench.manager.plan_swap_out([1]) is not None
    assert bench.manager.usage().num_limbo == 2
    assert bench.manager.admit(2, KEY, [1], num_tokens=1) is None
    bench.step()
    assert bench.manager.swap_in([1]) is not None
    bench.manager.grow(1, 8, write_from=7)  # the second copy is stale at once, but is being read
    usage = bench.manager.usage()
    assert (usage.num_swap_limbo, usage.num_swap_cached, usage.num_swap_free) == (2, 0, 6)
    bench.step()
    usage = bench.manager.usage()
    assert (usage.num_swap_limbo, usage.num_swap_cached, usage.num_swap_free) == (0, 1, 7)


def test_freeing_a_swapped_sequence_frees_both_tiers() -> None:
    bench = Bench()
    bench.start(1, 6)
    bench.manager.fork(1, 2)
    bench.manager.grow(1, 7, write_from=6)
    bench.step()
    bench.swap_out(2)
    assert bench.manager.is_swapped(2)
    bench.manager.free(2)
    assert not bench.manager.is_swapped(2)
    bench.manager.free(1)
    usage = bench.manager.usage()
    assert (usage.num_free, usage.num_swap_free) == (8, 8)
    bench.manager.check(set())


def test_copies_made_by_a_failed_step_are_not_trusted() -> None:
    bench = Bench()
    bench.start(1, 4)
    bench.swap_out(1)
    assert bench.manager.swap_in([1]) is not None
    bench.manager.step_submitted(9)
    bench.manager.step_completed(9, failed=True)
    bench.step_id = 9
    assert len(bench.swap_out(1)[0]) == 1
    bench.manager.check({1})


def test_without_a_swap_tier_nothing_can_be_swapped() -> None:
    bench = Bench(num_swap_blocks=0)
    bench.start(1, 4)
    assert bench.manager.plan_swap_out([1]) is None
    bench.manager.check({1})
