# SPDX-License-Identifier: Apache-2.0
"""What an urgent group may do when less urgent ones hold what it waits for."""

from __future__ import annotations

from octavo.scheduler.draft import Draft
from octavo.scheduler.policy import band
from octavo.scheduler.preemption import Preemptor
from octavo.scheduler.queues import Queues
from octavo.types.sequence import SequenceGroup


class Urgency:
    """A group that cannot start takes the place of a group of a less urgent class. One a plan, and
    then not before the blocks have had time to come back.

    Groups that are spared further preemption cannot be displaced: the urgent group waits until one
    of them ends. That one then inherits its class (priority inheritance), so that nothing between
    the two in rank delays it.
    """

    def __init__(self, queues: Queues, preemptor: Preemptor) -> None:
        self._queues = queues
        self._preemptor = preemptor
        self._not_before = 0  # step

    def make_way(self, urgent: SequenceGroup, draft: Draft, num_inflight: int) -> None:
        """``urgent`` was the first in line in the last plan and could not start."""
        if draft.step_id < self._not_before or urgent not in self._queues.waiting:
            return
        mine = band(urgent)
        running = self._queues.running
        first_idx = next((i for i, group in enumerate(running) if group.rank[0] > mine), None)
        if first_idx is None:
            return
        victim = self._preemptor.choose(first_idx, draft)
        if victim is None:
            return
        self._not_before = draft.step_id + num_inflight + 2
        if self._preemptor.is_spared(victim):
            self._queues.inherit(victim, mine)
        else:
            self._preemptor.preempt(victim, draft)
