# SPDX-License-Identifier: Apache-2.0
"""The baseline that the articles' claims are measured against."""

from __future__ import annotations

import pytest

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.reserve import Reserve
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.static_batch import num_padding
from octavo.types.config import SchedulerConfig
from octavo.types.errors import InvalidConfig
from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup
from schedkit import Rig, make_group

BATCHES = {"batching": "static", "max_num_batched_tokens": 64, "prefix_caching": False}


def running(rig: Rig) -> list[SequenceGroup]:
    return list(rig.scheduler.running)


def test_a_batch_is_refilled_when_all_of_it_has_ended() -> None:
    rig = Rig(max_num_seqs=2, **BATCHES)
    short, long, next_one = (rig.add(4, max_tokens=count) for count in (2, 6, 2))
    seen = []
    while rig.scheduler.has_groups:
        rig.step()
        if running(rig) not in seen[-1:]:
            seen.append(running(rig))
    assert seen == [[short, long], [long], [], [next_one], []]


def test_continuous_batching_refills_at_once() -> None:
    rig = Rig(max_num_seqs=2, **BATCHES | {"batching": "continuous"})
    _, long, next_one = (rig.add(4, max_tokens=count) for count in (2, 6, 2))
    for _ in range(3):
        rig.step()
    assert running(rig) == [long, next_one]
    assert rig.scheduler.num_padding_tokens == 0


def test_who_comes_while_a_batch_is_filled_waits_for_the_next() -> None:
    rig = Rig(**BATCHES | {"max_num_batched_tokens": 8})
    members = [rig.add(20), rig.add(20)]
    rig.step()
    newcomer = rig.add(1, max_tokens=1)
    for _ in range(4):
        rig.step()
    assert running(rig) == members
    rig.drain()
    assert newcomer.is_finished


def test_blocks_bound_a_batch_by_what_is_reserved() -> None:
    """8 blocks of 8 slots and 32 slots for each, whatever it asks for: two at a time."""
    rig = Rig(num_blocks=8, admission_reserve="max_model_len", max_model_len=32, **BATCHES)
    groups = [rig.add(4, max_tokens=3) for _ in range(5)]
    rig.step()
    assert running(rig) == groups[:2]
    assert rig.scheduler.num_promised_blocks == 2 * (4 - 1)
    rig.drain()


def test_a_reserve_larger_than_the_pool_lets_one_run() -> None:
    rig = Rig(num_blocks=4, admission_reserve="max_model_len", max_model_len=1000, **BATCHES)
    first, _ = rig.add(4), rig.add(4)
    rig.step()
    assert running(rig) == [first]
    rig.drain()


def test_samples_of_a_contiguous_cache_share_nothing() -> None:
    blocks = BlockManager(64, 8)
    group = make_group(0, [1] * 20, num_samples=3)
    assert Reserve(blocks, "max_model_len", 32).num_blocks_for(group) == 3 * 4
    assert Reserve(blocks, "full").num_blocks_for(group) == 2 + 3 * 2  # the prompt's blocks once


def test_reserving_needs_a_length() -> None:
    config = SchedulerConfig(admission_reserve="max_model_len")
    with pytest.raises(InvalidConfig, match="needs max_model_len"):
        Scheduler(BlockManager(8, 8), config, num_rows=4)


def test_an_urgent_request_does_not_break_into_a_batch() -> None:
    rig = Rig(max_num_seqs=1, **BATCHES)
    batch = rig.add(4, service_class=ServiceClass.BATCH)
    rig.step()
    urgent = rig.add(4, service_class=ServiceClass.INTERACTIVE)
    for _ in range(3):
        rig.step()
    assert running(rig) == [batch]
    rig.drain()
    assert (urgent.is_finished, batch.num_preemptions) == (True, 0)


def test_a_preempted_member_comes_back_into_its_own_batch() -> None:
    rig = Rig(num_blocks=6, preemption_mode="recompute", **BATCHES)
    members = [rig.add(15, max_tokens=20), rig.add(15, max_tokens=20)]
    rig.step()
    later = rig.add(1, max_tokens=1)
    while not all(group.is_finished for group in members):
        assert later not in rig.scheduler.running
        rig.step()
    assert members[1].num_preemptions > 0
    rig.drain()


class TestTwelveGibibytes:
    """The arithmetic that paging is usually introduced with: 12 GiB for the cache of a model of 13
    billion parameters, 800 KiB a token, and 2,048 tokens set aside for each sequence."""

    NUM_SLOTS = 12 * 2**30 // 819_200

    def num_running(self, prompt_len: int, **config: object) -> int:
        """That start of 300 which ask for some answer up to the limit of 2,048."""
        sizes = {"num_blocks": self.NUM_SLOTS // 8, "num_rows": 300, "max_num_seqs": 300}
        sizes["admission_window"] = 300
        rig = Rig(max_num_batched_tokens=2**20, max_model_len=2048, **sizes, **config)
        for _ in range(300):
            rig.add(prompt_len, max_tokens=2048 - prompt_len)
        rig.step()
        return len(rig.scheduler.running)

    def test_seven_sequences_fit_where_the_longest_is_set_aside(self) -> None:
        assert (self.NUM_SLOTS, self.NUM_SLOTS // 2048) == (15_728, 7)
        for batching in ("static", "continuous"):
            mode = {"batching": batching, "admission_reserve": "max_model_len"}
            assert self.num_running(10, **mode) == self.num_running(1000, **mode) == 7

    @pytest.mark.parametrize("prompt_len", [100, 1000])
    def test_paged_there_is_room_for_what_is_there(self, prompt_len: int) -> None:
        found = self.num_running(prompt_len, prefix_caching=False)
        blocks_each = -(-prompt_len // 8)
        assert found == self.NUM_SLOTS // 8 // blocks_each
        assert found == {100: 151, 1000: 15}[prompt_len]


class TestPadding:
    def test_ten_tokens_beside_4096(self) -> None:
        """The articles' example: of what is computed for the short one 99 % is padding."""
        groups = [make_group(0, [1] * 10), make_group(1, [1] * 4096)]
        assert num_padding(groups) == 4086
        assert round(num_padding(groups) / 4096, 2) == 1.00

    def test_equal_lengths_and_single_ones_need_none(self) -> None:
        assert num_padding([make_group(0, [1] * 7), make_group(1, [2] * 7)]) == 0
        assert num_padding([make_group(0, [1] * 7)]) == num_padding([]) == 0

    def test_is_counted_when_a_batch_ends(self) -> None:
        rig = Rig(max_num_seqs=2, **BATCHES)
        for prompt_len, max_tokens in ((4, 2), (10, 6), (3, 1), (3, 4)):
            rig.add(prompt_len, max_tokens=max_tokens)
        counted = set()
        while rig.scheduler.has_groups:
            rig.step()
            counted.add(rig.scheduler.num_padding_tokens)
        first, second = (10 - 4) + (6 - 2), 4 - 1
        assert counted == {0, first, first + second}
