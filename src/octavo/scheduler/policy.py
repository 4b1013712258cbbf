# SPDX-License-Identifier: Apache-2.0
"""Who starts first among those who wait. Adding a policy is adding a class to ``POLICIES``."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

from octavo.scheduler.queues import RankedQueue
from octavo.types.config import SchedulerConfig
from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup

PROMOTED_BAND = -1.0  # waited too long: ahead of every class

BANDS = {
    ServiceClass.INTERACTIVE: 0.0,
    ServiceClass.STANDARD: 1.0,
    ServiceClass.BATCH: 2.0,
}


class View(Protocol):
    """What a policy may ask beside the group itself."""

    def num_uncached(self, group: SequenceGroup) -> int:
        """Tokens that must be computed before the group samples its next: known tokens less those
        in the cache or the swap pool. Costs a look-up of the prompt."""

    def num_cached(self, group: SequenceGroup) -> int:
        """Tokens that need not be computed."""

    def num_blocks(self, group: SequenceGroup) -> int:
        """Blocks that the group is counted for at its start (``admission_reserve``)."""


class Policy(Protocol):
    """A smaller key starts sooner. Ties go to the senior group.

    is_static     the key never changes: waiting groups are kept in its order
    swapped_bonus how much the key of a swapped group is lowered, because its work is done already;
                  0 where the key sees that by itself
    """

    is_static: bool
    swapped_bonus: float

    def key(self, group: SequenceGroup, now: float, view: View) -> float: ...

    def shortlist(self, waiting: RankedQueue, count: int) -> list[SequenceGroup]:
        """Up to ``count`` of those who wait, in order of rank: whom to compare for a start."""

    def added(self, group: SequenceGroup) -> None:
        """A new group waits."""

    def served(self, group: SequenceGroup, num_prompt_tokens: int, num_samples: int) -> None:
        """A step has computed this much for the group."""

    def ended(self, group: SequenceGroup) -> None:
        """The group has finished."""


class _Base:
    is_static = False
    swapped_bonus = 0.0

    def shortlist(self, waiting: RankedQueue, count: int) -> list[SequenceGroup]:
        return waiting.head(count)

    def added(self, group: SequenceGroup) -> None:
        pass

    def served(self, group: SequenceGroup, num_prompt_tokens: int, num_samples: int) -> None:
        pass

    def ended(self, group: SequenceGroup) -> None:
        pass


class FirstComeFirstServed(_Base):
    """By arrival."""

    is_static = True

    def __init__(self, swapped_bonus_s: float) -> None:
        self.swapped_bonus = swapped_bonus_s

    def key(self, group: SequenceGroup, now: float, view: View) -> float:
        return group.arrival_time


class RequestPriority(_Base):
    """By the caller's number, the lower the sooner; a swapped group goes before its equals."""

    is_static = True
    swapped_bonus = 0.5  # priorities are whole numbers

    def key(self, group: SequenceGroup, now: float, view: View) -> float:
        return float(group.request.priority)


class ShortestJobFirst(_Base):
    """By the tokens that must be computed before the next sample."""

    def key(self, group: SequenceGroup, now: float, view: View) -> float:
        return float(view.num_uncached(group))


class HighestResponseRatio(_Base):
    """By (waiting + work) / work: short jobs first, and any job in the end.

    Work is in tokens and waiting in seconds, so a rate turns one into the other: what matters is
    only that a job which needs twice the work reaches the same ratio after twice the time.
    """

    TOKENS_PER_S = 1000.0

    def key(self, group: SequenceGroup, now: float, view: View) -> float:
        work_s = max(1, view.num_uncached(group)) / self.TOKENS_PER_S
        return -(now - group.arrival_time + work_s) / work_s


class Weighted(_Base):
    """By a score of what the caller asks for, the waiting, and the cost, each with its weight.

    The score of one who waits rises by ``ageing_weight`` a second against that of whoever comes
    later, so with such a weight only those who arrive within (difference of their other terms) /
    ``ageing_weight`` seconds can ever start before it: the wait is bounded against any stream.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config

    def key(self, group: SequenceGroup, now: float, view: View) -> float:
        weights = self._config
        cost = weights.token_weight * view.num_uncached(group)
        cost += weights.sample_weight * group.num_seats
        if weights.block_weight:
            cost += weights.block_weight * view.num_blocks(group)
        waited = weights.ageing_weight * (now - group.arrival_time)
        return weights.priority_weight * group.request.priority + cost - waited


class LongestPrefixMatch(_Base):
    """By the tokens found in the cache, the most first: they are still there now."""

    def key(self, group: SequenceGroup, now: float, view: View) -> float:
        return -float(view.num_cached(group))


class FairShare(_Base):
    """By what the group's user has been given so far: a virtual token counter (Sheng et al., 2024).

    A sampled token counts twice a prompt token, as it costs about that. Who comes back from being
    idle is lifted to the least counter of those who are not, so nobody saves up service; and any
    two users with work waiting are kept within one request of each other.
    """

    SAMPLE_WEIGHT = 2.0

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._num_groups: dict[str, int] = {}  # of users with work; nobody else is in it
        self._floor = 0.0  # the counter of whoever became idle last

    def key(self, group: SequenceGroup, now: float, view: View) -> float:
        return self._counters[group.request.user]

    def shortlist(self, waiting: RankedQueue, count: int) -> list[SequenceGroup]:
        """The same number of each user's, of the users served least if there are too many: one who
        floods the queue must not fill the list. O(waiting groups)."""
        users = sorted(self._num_groups, key=self._counters.__getitem__)[:count]
        left = dict.fromkeys(users, count // max(1, len(users)))
        found = []
        for group in waiting:
            user = group.request.user
            if group.rank[0] == PROMOTED_BAND or left.get(user, 0) > 0:
                left[user] = left.get(user, 0) - 1
                found.append(group)
                if len(found) == count:
                    break
        return found

    def added(self, group: SequenceGroup) -> None:
        user = group.request.user
        if user not in self._num_groups:
            busy = [self._counters[other] for other in self._num_groups]
            floor = min(busy, default=self._floor)
            self._counters[user] = max(self._counters.get(user, 0.0), floor)
        self._num_groups[user] = self._num_groups.get(user, 0) + 1

    def served(self, group: SequenceGroup, num_prompt_tokens: int, num_samples: int) -> None:
        self._counters[group.request.user] += num_prompt_tokens + self.SAMPLE_WEIGHT * num_samples

    def ended(self, group: SequenceGroup) -> None:
        user = group.request.user
        self._num_groups[user] -= 1
        if self._num_groups[user] == 0:
            del self._num_groups[user]
            self._floor = max(self._floor, self._counters[user])
            if not self._num_groups:  # a new busy time: everybody starts level
                self._counters.clear()
                self._floor = 0.0


POLICIES: dict[str, Callable[[SchedulerConfig], Policy]] = {
    "fcfs": lambda config: FirstComeFirstServed(config.swapped_bonus_s),
    "priority": lambda config: RequestPriority(),
    "sjf": lambda config: ShortestJobFirst(),
    "hrrn": lambda config: HighestResponseRatio(),
    "weighted": Weighted,
    "lpm": lambda config: LongestPrefixMatch(),
    "fair": lambda config: FairShare(),
}


def make_policy(config: SchedulerConfig) -> Policy:
    return POLICIES[config.scheduling_policy](config)


def band(group: SequenceGroup) -> float:
    return BANDS[group.request.service_class]


def preemption_gap(config: SchedulerConfig) -> float:
    """By how much another priority must be more urgent to displace somebody of the same class."""
    gap = config.priority_preemption_gap
    is_on = config.scheduling_policy == "priority" and config.priority_preemption and gap > 0
    return gap if is_on else inf


def outranks(rank: tuple[float, ...], other: tuple[float, ...], gap: float) -> bool:
    """Is the first of a more urgent class, or of the same and ahead by the ``gap``? The promoted
    are ordered by arrival, so no gap counts among them."""
    if rank[0] == other[0]:
        return rank[0] != PROMOTED_BAND and other[1] - rank[1] >= gap
    return rank[0] < other[0]
