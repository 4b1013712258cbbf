# SPDX-License-Identifier: Apache-2.0
"""A bound on waiting, whatever the policy prefers."""

from __future__ import annotations

from collections import deque

from octavo.scheduler.policy import PROMOTED_BAND
from octavo.scheduler.queues import RankedQueue
from octavo.types.sequence import SequenceGroup


class Promotion:
    """Groups that have waited longer than ``wait_max_s`` go ahead of everybody who has not.

    The promoted are first come, first served, among themselves, so none of them starves. 0 is off.
    """

    def __init__(self, waiting: RankedQueue, wait_max_s: float) -> None:
        self.num_promoted = 0
        self._waiting = waiting
        self._wait_max_s = wait_max_s
        self._arrivals: deque[SequenceGroup] = deque()  # who may still be promoted, by arrival

    def watch(self, group: SequenceGroup) -> None:
        if self._wait_max_s > 0:
            self._arrivals.append(group)

    def promote(self, now: float) -> None:
        """O(groups whose time has come)."""
        while self._arrivals and now - self._arrivals[0].arrival_time > self._wait_max_s:
            group = self._arrivals.popleft()
            if group.first_scheduled_time is None and group in self._waiting:
                self._waiting.remove(group)
                group.rank = (PROMOTED_BAND, group.arrival_time, group.seniority)
                self._waiting.add(group)
                self.num_promoted += 1
