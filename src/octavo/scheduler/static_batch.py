# SPDX-License-Identifier: Apache-2.0
"""The baseline: one batch at a time, as engines had it before requests could join and leave."""

from __future__ import annotations

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.queues import RankedQueue
from octavo.scheduler.reserve import Reserve
from octavo.types.sequence import SequenceGroup


class StaticBatch:
    """Requests that start together; nobody else starts before all of them have ended.

    A batch takes who is first in line, as many as the seats and the blocks allow that ``reserve``
    counts them for, and at least one. What is computed stays ragged: this shows what refilling and
    paging gain by themselves. What a padded engine would add is counted and not computed.
    """

    def __init__(self, blocks: BlockManager, reserve: Reserve, *, max_num_seqs: int) -> None:
        self._blocks = blocks
        self._reserve = reserve
        self._max_num_seqs = max_num_seqs
        self._members: list[SequenceGroup] = []
        self._num_padding_before = 0  # of the batches before this one

    @property
    def num_padding_tokens(self) -> int:
        """Tokens that padding would have added to the batches that have ended."""
        return self._num_padding_before + (num_padding(self._members) if self._is_over else 0)

    def num_to_start(self, waiting: RankedQueue) -> int:
        """Members that wait; with the batch over, whoever may become one."""
        return len(waiting) if self._is_over else sum(one in waiting for one in self._members)

    def pick(self, candidates: list[SequenceGroup], running: RankedQueue) -> list[SequenceGroup]:
        """Who may start now: members that do not run, out of a new batch if the last is over.

        ``candidates`` are in order of service. O(members)."""
        if self._is_over and candidates:
            self._num_padding_before += num_padding(self._members)
            self._members = self._fill(candidates)
        return [one for one in self._members if not one.is_finished and one not in running]

    @property
    def _is_over(self) -> bool:
        return all(group.is_finished for group in self._members)

    def _fill(self, candidates: list[SequenceGroup]) -> list[SequenceGroup]:
        num_seats = num_blocks = 0
        for idx, group in enumerate(candidates):
            num_seats += group.num_seats
            num_blocks += self._reserve.num_blocks_for(group)
            is_full = num_seats > self._max_num_seqs or num_blocks > self._blocks.num_available
            if is_full and idx > 0:
                return candidates[:idx]
        return candidates


def num_padding(groups: list[SequenceGroup]) -> int:
    """Tokens that an engine computes on top when it pads every prompt to the longest one of the
    batch and keeps every sequence until the longest answer has ended."""
    seqs = [seq for group in groups for seq in group.sequences]
    prompt_max = max((seq.num_prompt for seq in seqs), default=0)
    outputs_max = max((seq.num_outputs for seq in seqs), default=0)
    return sum(prompt_max - seq.num_prompt + outputs_max - seq.num_outputs for seq in seqs)
