# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.scheduler.policy import PROMOTED_BAND, FairShare, make_policy
from octavo.scheduler.queues import RankedQueue
from octavo.types.config import SchedulerConfig
from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup
from schedkit import Rig, make_group


class FixedView:
    """Prompts have a tenth of their tokens in the cache."""

    def num_cached(self, group: SequenceGroup) -> int:
        return group.sequences[0].num_tokens // 10

    def num_uncached(self, group: SequenceGroup) -> int:
        return group.sequences[0].num_tokens - self.num_cached(group)

    def num_blocks(self, group: SequenceGroup) -> int:
        return group.sequences[0].num_tokens // 10


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("fcfs", [0, 1, 2]),
        ("priority", [2, 0, 1]),
        ("sjf", [1, 2, 0]),
        ("lpm", [0, 2, 1]),
        ("hrrn", [1, 0, 2]),
        ("weighted", [0, 2, 1]),
    ],
)
def test_the_order_of_three(name: str, order: list[int]) -> None:
    policy = make_policy(SchedulerConfig(scheduling_policy=name))
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


class TestWeighted:
    @pytest.mark.parametrize(
        ("weights", "order"),
        [
            ({"priority_weight": 100.0}, [1, 0, 2]),
            ({"ageing_weight": 0.0, "token_weight": 1.0}, [2, 1, 0]),
            ({"ageing_weight": 0.0, "priority_weight": 0.0, "token_weight": 0.01}, [2, 1, 0]),
            ({"block_weight": 10.0}, [2, 1, 0]),
            ({"sample_weight": 10.0, "ageing_weight": 0.0}, [1, 0, 2]),
            ({"token_weight": 0.0, "priority_weight": 0.0}, [0, 1, 2]),
        ],
    )
    def test_each_term_counts_by_its_weight(
        self, weights: dict[str, float], order: list[int]
    ) -> None:
        policy = make_policy(SchedulerConfig(scheduling_policy="weighted", **weights))
        groups = [
            make_group(0, [1] * 100, now=0.0),
            make_group(1, [1] * 50, now=8.0, priority=-1),
            make_group(2, [1] * 10, now=9.5, priority=1, num_samples=3),
        ]
        keys = [policy.key(group, 10.0, FixedView()) for group in groups]
        assert sorted(range(3), key=keys.__getitem__) == order

    def wait(self, ageing_weight: float, steps_max: int = 200) -> float | None:
        """Seconds until one of 404 tokens starts, when one of 4 comes in every step and a step ends
        one of them."""
        rig = Rig(
            scheduling_policy="weighted",
            ageing_weight=ageing_weight,
            token_weight=0.1,
            max_num_seqs=1,
            max_queue_wait_s=0,
        )
        rig.add(4, max_tokens=1)
        large = rig.add(404, max_tokens=1)
        for _ in range(steps_max):
            rig.add(4, max_tokens=1)
            rig.step()
            rig.now += 0.5
            if large.first_scheduled_time is not None:
                return large.first_scheduled_time
        return None

    def test_the_wait_is_bounded_against_a_stream_of_short_ones(self) -> None:
        """It costs 40 more, so only those of its first 40 / ageing_weight seconds pass it."""
        for ageing_weight in (1.0, 2.0, 8.0):
            waited_s = self.wait(ageing_weight)
            assert waited_s is not None
            assert 40 / ageing_weight <= waited_s <= 40 / ageing_weight + 3 * 0.5

    def test_and_without_ageing_it_is_not(self) -> None:
        assert self.wait(0.0) is None

    def test_equal_scores_start_by_arrival(self) -> None:
        rig = Rig(scheduling_policy="weighted", max_num_seqs=1)
        groups = [rig.add(5, max_tokens=1) for _ in range(4)]
        for num_ended in range(1, 5):
            rig.step()
            assert [group.is_finished for group in groups] == [idx < num_ended for idx in range(4)]


class TestFairShare:
    def test_a_flood_does_not_fill_the_list_of_those_who_are_compared(self) -> None:
        rig = Rig(scheduling_policy="fair", max_num_seqs=1, admission_window=4, max_queue_wait_s=0)
        flood = [rig.add(4, user="flood", max_tokens=2) for _ in range(30)]
        rig.step()
        light = rig.add(4, user="light", max_tokens=2)
        for _ in range(6):
            rig.step()
        assert light.is_finished
        assert sum(group.is_finished for group in flood) <= 3

    def test_with_more_users_than_places_those_served_least_are_compared(self) -> None:
        rig = Rig(scheduling_policy="fair", max_num_seqs=1, admission_window=2, max_queue_wait_s=0)
        users = [rig.add(4, user=str(idx), max_tokens=1) for idx in range(5)]
        again = [rig.add(4, user=str(idx), max_tokens=1) for idx in range(5)]
        for _ in range(5):
            rig.step()
        assert all(group.is_finished for group in users)
        assert not any(group.is_finished for group in again)

    def test_the_promoted_are_compared_whoever_they_belong_to(self) -> None:
        policy, waiting = FairShare(), RankedQueue()
        groups = [make_group(idx, [1], user="other" if idx == 4 else "flood") for idx in range(5)]
        for group in groups:
            policy.added(group)
            waiting.add(group)
        assert policy.shortlist(waiting, 4) == [groups[0], groups[1], groups[4]]
        for group in groups[:3]:
            waiting.remove(group)
            group.rank = (PROMOTED_BAND, 0.0, group.seniority)
            waiting.add(group)
        assert policy.shortlist(waiting, 4) == [*groups[:3], groups[4]]

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
