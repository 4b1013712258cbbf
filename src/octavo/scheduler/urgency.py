# SPDX-License-Identifier: Apache-2.0
"""What an urgent group may do when less urgent ones hold what it waits for."""

from __future__ import annotations

from octavo.scheduler.draft import Draft
from octavo.scheduler.policy import band, outranks, preemption_gap
from octavo.scheduler.preemption import Preemptor
from octavo.scheduler.queues import Queues
from octavo.types.config import SchedulerConfig
from octavo.types.sequence import SequenceGroup


class Urgency:
    """A group that cannot start takes the place of a group of a less urgent class or, under policy
    ``priority``, of its own class and less urgent by ``priority_preemption_gap``. One a plan, and
    then not before the blocks have had time to come back.

    Groups that are spared further preemption cannot be displaced: the urgent group waits until one
    of them ends. That one then inherits its class and priority (priority inheritance), so that
    nothing between the two in rank delays it.
    """

    def __init__(self, queues: Queues, preemptor: Preemptor, config: SchedulerConfig) -> None:
        self._gap = preemption_gap(config)
        self._queues = queues
        self._preemptor = preemptor
        self._not_before = 0  # step

    def make_way(self, urgent: SequenceGroup, draft: Draft, num_inflight: int) -> None:
        """``urgent`` was the first in line in the last plan and could not start."""
        if draft.step_id < self._not_before or urgent not in self._queues.waiting:
            return
        mine = band(urgent)
        running = self._queues.running
        wish = (mine, float(urgent.request.priority))
        first_idx = next(
            (i for i, group in enumerate(running) if outranks(wish, group.rank, self._gap)), None
        )
        if first_idx is None:
            return
        victim = self._preemptor.choose(first_idx, draft)
        if victim is None:
            return
        self._not_before = draft.step_id + num_inflight + 2
        if self._preemptor.is_spared(victim):
            is_of_class = victim.rank[0] == mine
            self._queues.inherit(victim, mine, wish[1] if is_of_class else None)
        else:
            self._preemptor.preempt(victim, draft)
