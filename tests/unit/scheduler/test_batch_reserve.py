# SPDX-License-Identifier: Apache-2.0
"""The last blocks and seats are not for the batch class."""

from __future__ import annotations

import pytest

from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup
from schedkit import Rig


def batch(rig: Rig, length: int, max_tokens: int = 40) -> SequenceGroup:
    return rig.add(length, max_tokens=max_tokens, service_class=ServiceClass.BATCH)


def num_started(groups: list[SequenceGroup]) -> int:
    return sum(group.first_scheduled_time is not None for group in groups)


def test_seats_are_left_to_others() -> None:
    rig = Rig(max_num_seqs=8, batch_reserve=0.25)
    many = [batch(rig, 4) for _ in range(8)]
    rig.step()
    assert num_started(many) == 6
    others = [rig.add(4) for _ in range(2)]
    rig.step()
    assert num_started(others) == 2
    assert sum(group.num_preemptions for group in many) == 0
    rig.drain()


@pytest.mark.parametrize("reserve", ["none", "prompt", "full"])
def test_blocks_are_left_to_others_however_the_batch_grows(reserve: str) -> None:
    rig = Rig(num_blocks=20, batch_reserve=0.3, prefix_caching=False, admission_reserve=reserve)
    many = [batch(rig, 10) for _ in range(9)]
    for _ in range(60):
        rig.step()
        if len(rig.scheduler.running) > 1:
            assert rig.blocks.num_available >= 6
    interactive = rig.add(40, max_tokens=2)
    rig.step()
    rig.step()
    assert num_started([interactive]) == 1
    rig.drain()
    assert all(group.is_finished for group in many)


def test_swapped_ones_come_back_only_below_the_reserve() -> None:
    rig = Rig(
        num_blocks=20,
        num_swap_blocks=20,
        batch_reserve=0.3,
        prefix_caching=False,
        preemption_mode="swap",
    )
    many = [batch(rig, 10) for _ in range(9)]
    while rig.scheduler.has_groups:
        rig.step()
        if len(rig.scheduler.running) > 1:
            assert rig.blocks.num_available >= 6
    assert rig.scheduler.preemptions.num_swaps > 0
    assert all(group.is_finished for group in many)


def test_alone_it_may_have_everything() -> None:
    rig = Rig(num_blocks=10, batch_reserve=0.5, prefix_caching=False)
    whole = batch(rig, 60, max_tokens=20)
    rig.drain()
    assert whole.is_finished
    assert whole.num_preemptions == 0


def test_samples_of_one_batch_request_leave_the_reserve_too() -> None:
    rig = Rig(num_blocks=20, batch_reserve=0.3, prefix_caching=False)
    rig.add(4, max_tokens=60)
    group = rig.add(10, num_samples=4, max_tokens=30, service_class=ServiceClass.BATCH)
    while not group.is_finished:
        rig.step()
    rig.drain()


def test_others_know_no_reserve() -> None:
    rig = Rig(max_num_seqs=4, batch_reserve=0.5)
    groups = [rig.add(4) for _ in range(4)]
    rig.step()
    assert num_started(groups) == 4
    rig.drain()


def test_nobody_else_is_preempted_to_keep_blocks_for_others() -> None:
    """A batch request that has waited too long goes first, and even so leaves the reserve."""
    rig = Rig(num_blocks=12, batch_reserve=0.5, prefix_caching=False)
    first = rig.add(8, max_tokens=40)
    rig.step()
    promoted = batch(rig, 20, max_tokens=30)
    rig.scheduler.waiting.remove(promoted)
    promoted.rank = (-1.0, *promoted.rank[1:])
    rig.scheduler.waiting.add(promoted)
    while rig.scheduler.has_groups:
        rig.step()
        if len(rig.scheduler.running) > 1:
            assert rig.scheduler.running[0] is promoted
    assert first.num_preemptions == 0
    assert promoted.is_finished
