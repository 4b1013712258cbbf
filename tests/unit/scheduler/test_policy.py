# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.scheduler.policy import FairShare, make_policy
from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup
from schedkit import Rig, make_group


class FixedView:
    """Prompts have a tenth of their tokens in the cache."""

    def num_cached(self, group: SequenceGroup) -> int:
        return group.sequences[0].num_tokens // 10

    def num_uncached(self, group: SequenceGroup) -> int:
        return group.sequences[0].num_tokens - self.num_cached(group)


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("fcfs", [0, 1, 2]),
        ("priority", [2, 0, 1]),
        ("sjf", [1, 2, 0]),
        ("lpm", [0, 2, 1]),
        ("hrrn", [1, 0, 2]),
    ],
)
def test_the_order_of_three(name: str, order: list[int]) -> None:
    policy = make_policy(name, swapped_bonus_s=1.0)
    groups = [
        make_group(0, [1] * 100, now=0.0, priority=1),
        make_group(1, [1] * 10, now=8.0, priority=1),
        make_group(2, [1] * 50, now=9.5, priority=-1),
    ]
    keys = [policy.key(group, 10.0, FixedView()) for group in groups]
    assert sorted(range(3), key=keys.__getitem__) == order


def test_classes_go_before_policies() -> None:
    rig = Rig(scheduling_policy="sjf", max_num_seqs=1)
    batch = rig.add(2, service_class=ServiceClass.BATCH, max_tokens=1)
    standard = rig.add(5, max_tokens=1)
    interactive = rig.add(9, service_class=ServiceClass.INTERACTIVE, max_tokens=1)
    ended: list[SequenceGroup] = []
    while rig.scheduler.has_groups:
        rig.step()
        ended += [g for g in (batch, standard, interactive) if g.is_finished and g not in ended]
    assert ended == [interactive, standard, batch]


class TestFairShare:
    def test_two_users_get_the_same_whatever_they_ask_for(self) -> None:
        rig = Rig(scheduling_policy="fair", max_num_seqs=1, max_queue_wait_s=0)
        greedy = [rig.add(10, user="greedy", max_tokens=5) for _ in range(20)]
        modest = [rig.add(10, user="modest", max_tokens=5) for _ in range(5)]
        while not all(group.is_finished for group in modest):
            rig.step()
        assert sum(group.is_finished for group in greedy) in (4, 5, 6)

    def test_who_was_idle_has_saved_up_nothing(self) -> None:
        policy = FairShare()
        busy, idle = make_group(0, [1], user="busy"), make_group(1, [1], user="idle")
        policy.added(busy)
        policy.served(busy, 1000, 10)
        policy.added(idle)
        assert policy.key(idle, 0.0, FixedView()) == policy.key(busy, 0.0, FixedView()) == 1020

    def test_who_comes_back_keeps_his_debt_and_counters_do_not_pile_up(self) -> None:
        policy = FairShare()
        first, other = make_group(0, [1], user="a"), make_group(1, [1], user="b")
        policy.added(first)
        policy.added(other)
        policy.served(first, 500, 0)
        policy.ended(first)
        policy.added(first)
        assert policy.key(first, 0.0, FixedView()) == 500
        policy.ended(first)
        policy.ended(other)
        assert policy._counters == {}
