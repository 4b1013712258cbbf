# SPDX-License-Identifier: Apache-2.0
"""Who gives up memory, and whether what it has computed is moved away or dropped."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.budget import CostModel
from octavo.scheduler.draft import Draft
from octavo.scheduler.policy import PROMOTED_BAND
from octavo.scheduler.queues import Queues
from octavo.scheduler.rows import Rows
from octavo.types.config import SchedulerConfig
from octavo.types.request import ServiceClass
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus

PROMOTED_TOKENS = 16  # of answer, that somebody who was promoted gets in peace


@dataclass(slots=True)
class PreemptionCounts:
    """Since the start. ``num_swap_fallbacks``: swaps that lacked room and became recomputes.
    ``num_partials``: recomputes of which a part was kept; in ``num_recomputes`` too.
    """

    num_swaps: int = 0
    num_recomputes: int = 0
    num_partials: int = 0
    num_swap_fallbacks: int = 0
    num_clean_blocks: int = 0
    num_lost_tokens: int = 0


class Preemptor:
    """Picks the victim whose loss is least for each block it frees, and preempts it.

    Modes: ``swap`` and ``recompute`` do that; ``legacy`` swaps a group with more than one running
    sequence and recomputes any other; ``auto`` does what is predicted to cost less. A swap pool
    without room turns a swap into a recompute; nothing here fails.

    A lone sequence that is recomputed gives up only as many blocks as are wanted, from its tail. It
    waits like any other that was preempted, with its rank, and goes on where it was cut. What it
    keeps is on loan: whoever is served may take more of it, the last in rank first, before anybody
    who runs is preempted. So it is in nobody's way, and all that holds for whole preemptions holds
    for these too: the first of the running can have every block that is not its own, from those
    behind it and from those who wait; hence it ends. And a call that takes from somebody leaves
    them less, so a plan ends as well.
    """

    def __init__(
        self,
        queues: Queues,
        blocks: BlockManager,
        rows: Rows,
        costs: CostModel,
        *,
        config: SchedulerConfig,
    ) -> None:
        self.counts = PreemptionCounts()
        self._kept: list[Sequence] = []  # those that have kept a part, or had
        self._queues = queues
        self._blocks = blocks
        self._rows = rows
        self._costs = costs
        self._mode = config.preemption_mode
        self._cuts_tails = config.partial_preemption and self._mode != "legacy"
        self._has_swap = blocks.usage().num_swap_blocks > 0
        self._max_preemptions = config.max_preemptions

    def make_room(
        self,
        group: SequenceGroup,
        idx: int,
        draft: Draft,
        num_wanted: int,
        *,
        only_batch: bool = False,
    ) -> bool:
        """Take ``num_wanted`` blocks, if they can be had in one place, so that ``group``, at
        ``idx`` of the running, may have more.

        First from those who wait and kept some; then from running groups behind it, and then it
        gives up its own: so the first in rank is never a victim, and it ends. Victims have no work
        in this plan yet, so nothing of it is undone. False when nobody has anything to give.
        ``only_batch``: the blocks are there, and kept from the batch class; so only it gives any.
        """
        if self.take_kept(num_wanted):
            return True
        victim = self.choose(idx + 1, draft, num_wanted, only_batch=only_batch)
        may_yield = idx > 0 and not _has_work(group, draft)
        if victim is not None and not (self.is_spared(victim) and may_yield):
            self.preempt(victim, draft, num_wanted)
            return True
        if may_yield and (victim is None or not self.is_spared(group)):
            self.preempt(group, draft, num_wanted)
            return True
        if victim is not None:
            self.preempt(victim, draft, num_wanted)
            return True
        return self._shrink(group, draft)

    def choose(
        self,
        first_idx: int,
        draft: Draft,
        num_wanted: int | None = None,
        *,
        only_batch: bool = False,
    ) -> SequenceGroup | None:
        """The running group, from ``first_idx`` on, whose preemption loses least.

        Those preempted too often already come last, then the least urgent class goes first, then
        the least lost work per block, then the youngest. ``num_wanted``: as ``preempt`` has it.
        """
        best: SequenceGroup | None = None
        best_key: tuple[float, ...] = ()
        for idx in range(first_idx, len(self._queues.running)):
            group = self._queues.running[idx]
            open_seqs = _open(group)
            if not open_seqs or _has_work(group, draft):
                continue
            if only_batch and group.request.service_class is not ServiceClass.BATCH:
                continue
            num_freed = self._num_freed(open_seqs)
            if num_freed == 0:  # all is shared with others: a loss without a gain
                continue
            num_kept = self._num_to_keep(open_seqs, num_wanted)
            if num_kept and num_wanted is not None:
                num_freed = min(num_freed, num_wanted)
            loss = self._loss(open_seqs, num_kept) / num_freed
            key = (self.is_spared(group), -group.rank[0], loss, -group.seniority)
            if best is None or key < best_key:
                best, best_key = group, key
        return best

    def is_spared(self, group: SequenceGroup) -> bool:
        """Others go first: it was preempted often enough, or has waited very long for its start and
        has only just begun."""
        if group.rank[0] == PROMOTED_BAND and group.num_outputs < PROMOTED_TOKENS:
            return True
        return group.num_preemptions >= self._max_preemptions > 0

    def preempt(self, group: SequenceGroup, draft: Draft, num_wanted: int | None = None) -> None:
        """Take rows and device blocks from a running group: all, or ``num_wanted`` if so many come
        from its tail and that costs less."""
        open_seqs = _open(group)
        group.num_preemptions += 1
        num_kept = self._num_to_keep(open_seqs, num_wanted)
        wants_swap = self._wants_swap(open_seqs, num_kept)
        if wants_swap and self._swap_out(group, open_seqs, draft):
            self.counts.num_swaps += 1
            return
        for seq in open_seqs:
            self.drop(seq, num_kept)
        self.counts.num_partials += num_kept > 0
        self.counts.num_recomputes += 1
        self._queues.running.remove(group)
        self._queues.waiting.add(group)

    def drop(self, seq: Sequence, num_kept: int = 0) -> None:
        """Give up all that a sequence has computed but the first ``num_kept`` tokens; it will
        compute it again."""
        self.counts.num_lost_tokens += seq.num_planned - num_kept
        self._rows.close(seq)
        seq.forget_row()
        self._cut(seq, num_kept)
        seq.transition(SequenceStatus.PREEMPTED)

    def _cut(self, seq: Sequence, num_kept: int) -> None:
        if num_kept and not seq.num_kept:
            self._kept.append(seq)
        seq.num_kept = num_kept
        if num_kept:
            self._blocks.truncate(seq.seq_id, num_kept)
        else:
            self._blocks.free(seq.seq_id)

    def take_kept(self, num_wanted: int, apart_from: SequenceGroup | None = None) -> bool:
        """Take blocks from the last in rank who waits and has kept some. False: nobody has.
        O(those who have)."""
        self._kept = [seq for seq in self._kept if seq.num_kept]
        others = [seq for seq in self._kept if seq.group is not apart_from]
        if not others:
            return False
        seq = max(others, key=lambda seq: seq.group.rank)
        before = seq.num_kept
        num_left = self._blocks.num_tokens_to_keep(seq.seq_id, num_wanted, before)
        self._cut(seq, num_left)
        self.counts.num_lost_tokens += before - num_left
        return True

    def drop_swapped(self, group: SequenceGroup) -> None:
        """Give up a group's swapped blocks, and the device blocks that it shares with others."""
        self._queues.swapped.remove(group)
        for seq in group.sequences:
            if seq.status is SequenceStatus.SWAPPED:
                self.drop(seq)
        self._queues.waiting.add(group)

    def drop_all(self) -> None:
        """Every group, of every queue, gives up all it has computed."""
        running, swapped = list(self._queues.running), list(self._queues.swapped)
        for group in running:
            for seq in _open(group):
                self.drop(seq)
            self._queues.running.remove(group)
            self._queues.waiting.add(group)
        for group in swapped:
            self.drop_swapped(group)
        self.counts.num_recomputes += len(running) + len(swapped)
        for seq in self._kept:
            if seq.num_kept:
                self.counts.num_lost_tokens += seq.num_kept
                self._cut(seq, 0)

    def _shrink(self, group: SequenceGroup, draft: Draft) -> bool:
        """Drop the last sample of a group that alone is too large; it branches off again later."""
        open_seqs = _open(group)
        idle = [seq for seq in open_seqs if seq.step_id != draft.step_id]
        if len(open_seqs) < 2 or not idle or idle[-1] is open_seqs[0]:
            return False
        self.counts.num_recomputes += 1
        self.drop(idle[-1])
        return True

    def _num_to_keep(self, open_seqs: list[Sequence], num_wanted: int | None) -> int:
        """Tokens that stay when ``num_wanted`` blocks come from the tail. A group of several shares
        blocks among its sequences, and beams move on together: these lose all."""
        if not self._cuts_tails or num_wanted is None or len(open_seqs) != 1:
            return 0
        (seq,) = open_seqs
        if seq.is_steered or len(seq.group.unfinished) > 1:
            return 0
        return self._blocks.num_tokens_to_keep(seq.seq_id, num_wanted, seq.num_computed)

    def _wants_swap(self, open_seqs: list[Sequence], num_kept: int = 0) -> bool:
        if not self._has_swap or not open_seqs or self._mode == "recompute":
            return False
        if self._mode == "swap":
            return True
        if self._mode == "auto" and self._costs.is_ready:
            return self._swap_s(open_seqs) < self._recompute_s(open_seqs, num_kept)
        return len(open_seqs) > 1

    def _swap_out(self, group: SequenceGroup, open_seqs: list[Sequence], draft: Draft) -> bool:
        moves = self._blocks.plan_swap_out([seq.seq_id for seq in open_seqs])
        if moves is None:
            self.counts.num_swap_fallbacks += 1
            return False
        draft.swap_outs += moves.pairs
        draft.swapped_out.append(group)
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

    def _loss(self, open_seqs: list[Sequence], num_kept: int) -> float:
        """Seconds to get back to where the sequences are; tokens, before seconds are known."""
        if not self._costs.is_ready:
            return float(sum(seq.num_planned for seq in open_seqs) - num_kept)
        if self._wants_swap(open_seqs, num_kept):
            return self._swap_s(open_seqs)
        return self._recompute_s(open_seqs, num_kept)

    def _swap_s(self, open_seqs: list[Sequence]) -> float:
        num_blocks_for = self._blocks.window.num_blocks_for
        num_blocks = sum(num_blocks_for(seq.num_planned) for seq in open_seqs)
        return 2 * num_blocks * self._costs.swap_s_per_block  # out, and in again

    def _recompute_s(self, open_seqs: list[Sequence], num_kept: int = 0) -> float:
        shared = open_seqs[0].num_prompt * (len(open_seqs) - 1)  # computed once for all of them
        num_tokens = max(1, sum(seq.num_planned for seq in open_seqs) - shared - num_kept)
        return num_tokens * self._costs.prefill_s_per_token


def _open(group: SequenceGroup) -> list[Sequence]:
    return [seq for seq in group.sequences if seq.row is not None]


def _has_work(group: SequenceGroup, draft: Draft) -> bool:
    return any(seq.step_id == draft.step_id for seq in group.sequences)
