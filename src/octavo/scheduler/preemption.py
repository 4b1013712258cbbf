# SPDX-License-Identifier: Apache-2.0
"""Who gives up memory, and whether what it has computed is moved away or dropped."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.budget import CostModel
from octavo.scheduler.draft import Draft
from octavo.scheduler.queues import Queues
from octavo.scheduler.rows import Rows
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus


@dataclass(slots=True)
class PreemptionCounts:
    """Since the start. ``num_swap_fallbacks``: swaps that lacked room and became recomputes."""

    num_swaps: int = 0
    num_recomputes: int = 0
    num_swap_fallbacks: int = 0
    num_swapped_out_blocks: int = 0
    num_swapped_in_blocks: int = 0
    num_clean_blocks: int = 0
    num_lost_tokens: int = 0


class Preemptor:
    """Picks the victim whose loss is least for each block it frees, and preempts it.

    Modes: ``swap`` and ``recompute`` do that; ``legacy`` swaps a group with more than one running
    sequence and recomputes any other; ``auto`` does what is predicted to cost less. A swap pool
    without room turns a swap into a recompute; nothing here fails.
    """

    def __init__(
        self,
        queues: Queues,
        blocks: BlockManager,
        rows: Rows,
        costs: CostModel,
        *,
        mode: str,
        max_preemptions: int,
    ) -> None:
        self.counts = PreemptionCounts()
        self._queues = queues
        self._blocks = blocks
        self._rows = rows
        self._costs = costs
        self._mode = mode
        self._has_swap = blocks.usage().num_swap_blocks > 0
        self._max_preemptions = max_preemptions

    def make_room(self, group: SequenceGroup, idx: int, draft: Draft) -> bool:
        """Take blocks from somebody so that ``group``, at ``idx`` of the running, may have more.

        Only groups behind it are asked, then the group itself: so the first in rank is never a
        victim, and it ends. They have no work in this plan yet, so nothing of it is undone. False
        when nobody has anything to give.
        """
        victim = self.choose(idx + 1, draft)
        may_yield = idx > 0 and not _has_work(group, draft)
        if victim is not None and not (self.is_spared(victim) and may_yield):
            self.preempt(victim, draft)
            return True
        if may_yield and (victim is None or not self.is_spared(group)):
            self.preempt(group, draft)
            return True
        if victim is not None:
            self.preempt(victim, draft)
            return True
        return self._shrink(group, draft)

    def choose(self, first_idx: int, draft: Draft) -> SequenceGroup | None:
        """The running group, from ``first_idx`` on, whose preemption loses least.

        Those preempted too often already come last, then the least urgent class goes first, then
        the least lost work per block, then the youngest.
        """
        best: SequenceGroup | None = None
        best_key: tuple[float, ...] = ()
        for idx in range(first_idx, len(self._queues.running)):
            group = self._queues.running[idx]
            open_seqs = _open(group)
            if not open_seqs or _has_work(group, draft):
                continue
            num_freed = self._num_freed(open_seqs)
            if num_freed == 0:  # all is shared with others: a loss without a gain
                continue
            loss = self._loss(open_seqs) / num_freed
            key = (self.is_spared(group), -group.rank[0], loss, -group.seniority)
            if best is None or key < best_key:
                best, best_key = group, key
        return best

    def is_spared(self, group: SequenceGroup) -> bool:
        return group.num_preemptions >= self._max_preemptions > 0

    def preempt(self, group: SequenceGroup, draft: Draft) -> None:
        """Take rows and device blocks from a running group."""
        open_seqs = _open(group)
        group.num_preemptions += 1
        if self._wants_swap(open_seqs) and self._swap_out(group, open_seqs, draft):
            self.counts.num_swaps += 1
            return
        for seq in open_seqs:
            self.drop(seq)
        self.counts.num_recomputes += 1
        self._queues.running.remove(group)
        self._queues.waiting.add(group)

    def drop(self, seq: Sequence) -> None:
        """Give up all that a sequence has computed; it will compute it again."""
        self.counts.num_lost_tokens += seq.num_planned
        self._rows.close(seq)
        seq.forget_row()
        self._blocks.free(seq.seq_id)
        seq.transition(SequenceStatus.PREEMPTED)

    def drop_swapped(self, group: SequenceGroup) -> None:
        """Give up a group's swapped blocks, and the device blocks that it shares with others."""
        self._queues.swapped.remove(group)
        for seq in group.sequences:
            if seq.status is SequenceStatus.SWAPPED:
                self.drop(seq)
        self._queues.waiting.add(group)

    def _shrink(self, group: SequenceGroup, draft: Draft) -> bool:
        """Drop the last sample of a group that alone is too large; it branches off again later."""
        open_seqs = _open(group)
        idle = [seq for seq in open_seqs if seq.step_id != draft.step_id]
        if len(open_seqs) < 2 or not idle or idle[-1] is open_seqs[0]:
            return False
        self.counts.num_recomputes += 1
        self.drop(idle[-1])
        return True

    def _wants_swap(self, open_seqs: list[Sequence]) -> bool:
        if not self._has_swap or not open_seqs or self._mode == "recompute":
            return False
        if self._mode == "swap":
            return True
        if self._mode == "auto" and self._costs.is_ready:
            return self._swap_s(open_seqs) < self._recompute_s(open_seqs)
        return len(open_seqs) > 1

    def _swap_out(self, group: SequenceGroup, open_seqs: list[Sequence], draft: Draft) -> bool:
        moves = self._blocks.plan_swap_out([seq.seq_id for seq in open_seqs])
        if moves is None:
            self.counts.num_swap_fallbacks += 1
            return False
        draft.swap_outs += moves.pairs
        draft.swapped_out.append(group)
        self.counts.num_swapped_out_blocks += len(moves.pairs)
        self.counts.num_clean_blocks += moves.num_clean
        for seq in open_seqs:  # steps in flight still compute for it, and are still heard
            self._rows.close(seq)
            seq.num_owned = 0
            seq.transition(SequenceStatus.SWAPPED)
        self._queues.running.remove(group)
        self._queues.swapped.add(group)
        return True

    def _num_freed(self, open_seqs: list[Sequence]) -> int:
        return self._blocks.num_exclusive_blocks([seq.seq_id for seq in open_seqs])

    def _loss(self, open_seqs: list[Sequence]) -> float:
        """Seconds to get back to where the sequences are; tokens, before seconds are known."""
        if not self._costs.is_ready:
            return float(sum(seq.num_planned for seq in open_seqs))
        if self._wants_swap(open_seqs):
            return self._swap_s(open_seqs)
        return self._recompute_s(open_seqs)

    def _swap_s(self, open_seqs: list[Sequence]) -> float:
        num_blocks = sum(self._blocks.num_blocks_for(seq.num_planned) for seq in open_seqs)
        return 2 * num_blocks * self._costs.swap_s_per_block  # out, and in again

    def _recompute_s(self, open_seqs: list[Sequence]) -> float:
        shared = open_seqs[0].num_prompt * (len(open_seqs) - 1)  # computed once for all of them
        num_tokens = max(1, sum(seq.num_planned for seq in open_seqs) - shared)
        return num_tokens * self._costs.prefill_s_per_token


def _open(group: SequenceGroup) -> list[Sequence]:
    return [seq for seq in group.sequences if seq.row is not None]


def _has_work(group: SequenceGroup, draft: Draft) -> bool:
    return any(seq.step_id == draft.step_id for seq in group.sequences)
