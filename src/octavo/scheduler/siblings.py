# SPDX-License-Identifier: Apache-2.0
"""Sequences that begin with what another one of their group has computed."""

from __future__ import annotations

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.batch_reserve import BatchReserve
from octavo.scheduler.draft import Draft
from octavo.scheduler.rows import Rows
from octavo.scheduler.service import Service
from octavo.types.errors import CorruptState
from octavo.types.sequence import Sequence, SequenceGroup


class Siblings:
    """Forks and branches. Only references are taken; a block is copied when it is written to.

    The samples of one prompt part in the plan that ends it (``Service`` sees to that). Here are the
    other two cases: a sample that was dropped alone and comes back, and a beam that is chosen.
    """

    def __init__(
        self, blocks: BlockManager, rows: Rows, service: Service, batch: BatchReserve
    ) -> None:
        self._blocks = blocks
        self._rows = rows
        self._service = service
        self._batch = batch

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Open ``child`` on all that ``parent`` has computed, between two plans. Only references
        are taken: a block is copied when one of the two writes to it."""
        if not self._rows.num_free:
            raise CorruptState(f"no row is left for a fork of sequence {parent.seq_id}")
        table = self._blocks.fork(parent.seq_id, child.seq_id)
        parent.num_owned = 0
        self._service.open(child, parent.num_planned, table, num_computed=parent.num_computed)

    def branch_off(self, group: SequenceGroup, draft: Draft) -> None:
        """Open samples that were preempted alone, or that had no row when the prompt ended.

        Each must find, besides its own blocks, one of growth for every open one that goes on, or it
        would only push another one out. When they are not there nobody else gets them either. A
        beam that has offered does not go on before the others have, so it must not hold them up.
        """
        open_seqs = [seq for seq in group.sequences if seq.row is not None]
        for seq in group.sequences:
            if seq.row is not None or seq.is_finished:
                continue
            num_shared = min(seq.num_prompt, seq.num_tokens - 1)
            ahead = [s for s in open_seqs if _reaches(s, num_shared, draft)]
            if not ahead or draft.share() < 1:
                return
            donors = [s for s in ahead if self._blocks.reaches_back(s.seq_id, num_shared)]
            not_own = self._blocks.window.num_hidden(seq.num_tokens)
            if donors:
                not_own = max(not_own, num_shared // self._blocks.block_size)
            num_own = self._blocks.num_blocks_for(seq.num_tokens + 1) - not_own
            num_own += self._batch.num_blocks(group)
            num_growth = sum(_goes_on(open_seq) for open_seq in open_seqs)
            is_room = self._blocks.num_available >= num_own + num_growth
            if not is_room or not self._open(seq, donors, num_shared, draft):
                draft.is_short = True
                return
            open_seqs.append(seq)

    def _open(self, seq: Sequence, donors: list[Sequence], num_shared: int, draft: Draft) -> bool:
        """On what another one has computed of it, unless all have given that up: then alone."""
        if donors:
            return self._branch(seq, donors[0], num_shared, draft)
        return self._service.reopen(seq, draft)

    def _branch(self, seq: Sequence, donor: Sequence, num_shared: int, draft: Draft) -> bool:
        """Open a sequence on the first ``num_shared`` tokens of another one of its group.

        They must have been planned before this plan: copies come before any computing. The rest of
        its own tokens follow at once. False, with nothing changed, when blocks or budget lack.
        """
        lag = seq.num_tokens - num_shared
        num_tokens = min(lag, draft.share())
        if num_tokens < 1 or not self._rows.num_free:
            return False
        num_blocks = self._blocks.num_blocks_for(num_shared)
        table = self._blocks.fork(donor.seq_id, seq.seq_id)[:num_blocks]
        self._blocks.truncate(seq.seq_id, num_shared)
        donor.num_owned = 0
        growth = self._blocks.grow(seq.seq_id, num_shared + num_tokens, write_from=num_shared)
        if growth is None:
            self._blocks.free(seq.seq_id)
            return False
        draft.copies += growth.copies
        self._service.open(seq, num_shared, table, num_computed=min(num_shared, donor.num_computed))
        seq.num_owned = (
            self._blocks.num_blocks_for(num_shared + num_tokens) * self._blocks.block_size
        )
        self._service.add_work(seq, num_tokens, growth.new_blocks, growth.replaced, draft)
        return True


def _goes_on(seq: Sequence) -> bool:
    """Has it anything to compute, now or when its sample arrives?"""
    return seq.num_planned < seq.num_expected < seq.num_tokens_max


def _reaches(donor: Sequence, num_tokens: int, draft: Draft) -> bool:
    """Had earlier plans computed so many tokens? Copies of this plan come before its computing."""
    is_served = donor.step_id == draft.step_id
    return (donor.num_before if is_served else donor.num_planned) >= num_tokens
