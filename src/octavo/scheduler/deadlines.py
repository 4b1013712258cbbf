# SPDX-License-Identifier: Apache-2.0
"""Requests that must have got somewhere by a certain time."""

from __future__ import annotations

import heapq

from octavo.types.sequence import SequenceGroup


class Deadlines:
    """A heap of (time, group, which limit). Limits that were met are dropped when they come up, so
    meeting one costs nothing; those of ended groups also when the heap has doubled since the last
    time, so that it stays in proportion to the groups that live."""

    def __init__(self) -> None:
        self._num_max = 64
        self._heap: list[tuple[float, int, str, SequenceGroup]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, group: SequenceGroup) -> None:
        if len(self._heap) >= self._num_max:
            self._heap = [item for item in self._heap if not item[-1].is_finished]
            heapq.heapify(self._heap)
            self._num_max = max(64, 2 * len(self._heap))
        request = group.request
        limits = (
            ("timeout_s", request.timeout_s),
            ("queue_timeout_s", request.queue_timeout_s),
            ("ttft_timeout_s", request.ttft_timeout_s),
        )
        for which, seconds in limits:
            if seconds is not None:
                time = group.arrival_time + seconds
                heapq.heappush(self._heap, (time, group.seniority, which, group))

    def expired(self, now: float) -> list[SequenceGroup]:
        """Unfinished groups that have missed a limit, each once; ``timed_out_by`` names it."""
        missed = []
        while self._heap and self._heap[0][0] <= now:
            _, _, which, group = heapq.heappop(self._heap)
            if _is_missed(group, which) and group.timed_out_by is None:
                group.timed_out_by = which
                missed.append(group)
        return missed


def _is_missed(group: SequenceGroup, which: str) -> bool:
    if group.is_finished:
        return False
    if which == "queue_timeout_s":
        return group.first_scheduled_time is None
    if which == "ttft_timeout_s":
        return group.first_token_time is None and group.num_outputs == 0
    return True
