# SPDX-License-Identifier: Apache-2.0
"""Puts the work of one group into a plan."""

from __future__ import annotations

from dataclasses import replace

from octavo.cache.block_manager import BlockManager
from octavo.cache.cache_key import CacheKey
from octavo.scheduler.batch_reserve import BatchReserve
from octavo.scheduler.draft import Draft, chunk_max
from octavo.scheduler.policy import PROMOTED_BAND
from octavo.scheduler.rows import Rows
from octavo.types.errors import CorruptState
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import BlockCopy, RowWork

SPELT_OUT = 2**62  # as ``num_given``: every token of this row comes from the control plane


class Service:
    """Prefill, chunked prefill, recompute after preemption, resumption after a swap and decode are
    one case: a sequence lags by some tokens, and a step computes some of them.

    Everything is all or nothing for one sequence, and nothing for the others of its group depends
    on it: a group may be served in part.
    """

    def __init__(self, blocks: BlockManager, rows: Rows, batch: BatchReserve) -> None:
        self._blocks = blocks
        self._batch = batch
        self._rows = rows
        self._block_size = blocks.block_size
        self.chunk_max = blocks.window.chunk_max(blocks.num_blocks)

    def serve(self, group: SequenceGroup, draft: Draft) -> bool:
        """Plan the next tokens of a running group's open sequences, as far as the budget goes.

        False when blocks lack. What was planned before that stays planned, and a second call goes
        on where the first one stopped. A group that has lost all its open sequences to their ends
        gets another one open.
        """
        is_open = False
        for seq in group.sequences:
            if seq.row is None:
                continue
            is_open = True
            if seq.step_id == draft.step_id or seq.awaits_token:
                continue
            start = seq.num_planned
            known = len(seq.token_ids) + seq.num_inflight_samples
            lag = known - start
            # The token that ends a sequence by length is never computed, only sampled.
            if lag == 0 or known >= seq.num_tokens_max:
                continue
            num_tokens = self._num_tokens(seq, lag, start, draft)
            if lag > 1 and draft.num_sharers > 0:
                draft.num_sharers -= 1
            if num_tokens == 0:
                draft.num_partial += lag > 1
            elif not self._work(seq, num_tokens, draft):
                return False
        if is_open or draft.share(_is_promoted(group)) < 1:
            return True
        return self.reopen(group.unfinished[0], draft)

    def _num_tokens(self, seq: Sequence, lag: int, start: int, draft: Draft) -> int:
        if lag <= 1:
            return min(draft.budget, 1)
        return min(draft.piece(lag, start, _is_promoted(seq.group)), self.chunk_max)

    def reopen(self, seq: Sequence, draft: Draft) -> bool:
        """Start a sequence of a group that runs, whatever the watermark."""
        probe = self._blocks.probe(self.key(seq.group), self.findable(seq), ignore_watermark=True)
        return self.start(seq, draft, num_cached=probe.num_cached_tokens, ignore_watermark=True)

    def start(
        self, seq: Sequence, draft: Draft, *, num_cached: int, ignore_watermark: bool = False
    ) -> bool:
        """Give a sequence without row and blocks both, and its first tokens. False if it must wait.

        ``num_cached`` is what a probe has found of it, or what it has kept: work begins after that.
        """
        lag = seq.num_tokens - num_cached
        num_tokens = self._num_tokens(seq, lag, num_cached, draft)
        if num_tokens < 1 or not self._rows.num_free:
            return False
        if seq.num_kept:
            if num_cached == seq.num_kept:
                return self._go_on(seq, num_tokens, draft, ignore_watermark=ignore_watermark)
            self._blocks.free(seq.seq_id)  # all that it has kept, and more, can be found
            seq.num_kept = 0
        admission = self._blocks.admit(
            seq.seq_id,
            self.key(seq.group),
            self.findable(seq),
            num_tokens=num_cached + num_tokens,
            ignore_watermark=ignore_watermark,
        )
        if admission is None:
            return False
        # When blocks are scarce it may be more or less than the probe found; one token is computed.
        cached = admission.num_cached_tokens
        end = max(num_cached + num_tokens, cached + 1)
        blocks = admission.blocks
        if end > len(blocks) * self._block_size:
            growth = self._blocks.grow(seq.seq_id, end, write_from=cached)
            if growth is None:
                self._blocks.free(seq.seq_id)
                return False
            blocks += growth.new_blocks
        if self._blocks.num_available < self._batch.num_blocks(seq.group):
            self._blocks.free(seq.seq_id)
            return False
        draft.copies += admission.copies
        self._open_with_work(seq, cached, end, blocks, draft)
        return True

    def _go_on(
        self, seq: Sequence, num_tokens: int, draft: Draft, *, ignore_watermark: bool
    ) -> bool:
        """``start`` for a sequence that has kept the first part of what it had computed."""
        start = seq.num_kept
        num_blocks = self._blocks.num_blocks_to_grow(seq.seq_id, start + num_tokens)
        num_left = 0 if ignore_watermark else self._blocks.num_watermark_blocks
        num_left = max(num_left, self._batch.num_blocks(seq.group))
        if num_blocks + num_left > self._blocks.num_available:
            return False
        end = start + num_tokens
        growth = self._blocks.grow(seq.seq_id, end, write_from=start)
        table = self._blocks.table(seq.seq_id)
        if growth is None or table is None:
            raise CorruptState(f"sequence {seq.seq_id} kept {start} tokens and cannot go on")
        seq.num_kept = 0
        self._open_with_work(seq, start, end, tuple(table.ids), draft)
        return True

    def _open_with_work(
        self, seq: Sequence, start: int, end: int, blocks: tuple[int, ...], draft: Draft
    ) -> None:
        """A row for tokens [0, ``start``), and the work of [``start``, ``end``)."""
        if seq.num_tokens - start > 1 and draft.num_sharers > 0:
            draft.num_sharers -= 1
        self.open(seq, start, blocks, num_computed=start)
        seq.num_owned = len(blocks) * self._block_size
        self.add_work(seq, end - start, (), (), draft)

    def resume(self, seq: Sequence, blocks: tuple[int, ...]) -> None:
        """A swapped sequence is back on the device: it goes on where it stopped.

        The worker has forgotten the token it sampled last, so the next plan spells it out.
        """
        self.open(seq, seq.num_planned, blocks, num_computed=seq.num_computed)

    def top_up(self, draft: Draft) -> None:
        """Give what is left of the step, in equal parts, to prompts whose share was smaller than
        their need."""
        left, num_cut = draft.spare(), len(draft.cut_short)
        if not any(_is_promoted(draft.workers[idx][0].group) for idx in draft.cut_short):
            draft.num_kept_back = 0
        for num_served, idx in enumerate(draft.cut_short):
            seq, _ = draft.workers[idx]
            work = draft.work[idx]
            part = draft.part(left, num_cut - num_served, _is_promoted(seq.group))
            lag = seq.num_tokens - seq.num_planned
            extra = lag if lag <= part else min(part, chunk_max(work.start) - work.num_tokens)
            extra = min(extra, self.chunk_max - work.num_tokens)
            if extra < 1:
                continue
            end = work.start + work.num_tokens + extra
            new_blocks = self._extend(seq, end, seq.num_planned, draft.copies)
            if new_blocks is None:
                return
            samples = end == seq.num_tokens
            draft.work[idx] = replace(
                work,
                num_tokens=work.num_tokens + extra,
                token_ids=tuple(seq.token_ids[work.start : end]),
                new_blocks=work.new_blocks + new_blocks[0],
                replaced=work.replaced + new_blocks[1],
                samples=samples,
                targets=tuple(seq.token_ids[work.start + 1 : end + 1]) if work.targets else (),
                allowed=_allowed(seq, samples),
            )
            self._account(seq, extra, end, draft)
            left -= extra
            if samples:
                self._sampled(seq, end, draft)
                draft.num_partial -= 1

    def confirm(self, seq: Sequence) -> int:
        """Make what is computed findable, and give up what nothing of this sequence will see again;
        returns the blocks given up."""
        self._blocks.publish(seq.seq_id, self.key(seq.group), seq.token_ids, seq.num_computed)
        return self._blocks.slide(seq.seq_id, seq.num_computed)

    def key(self, group: SequenceGroup) -> CacheKey:
        return CacheKey(salt=group.request.cache_salt)

    def findable(self, seq: Sequence) -> list[int]:
        """The tokens that may be taken from the cache. A prompt that is being scored needs its
        logits: all but what is scored already must be computed."""
        if seq.num_scored < seq.num_to_score:
            return seq.token_ids[: seq.num_scored]
        return seq.token_ids

    def open(
        self, seq: Sequence, num_planned: int, blocks: tuple[int, ...], *, num_computed: int
    ) -> None:
        """A row for a sequence whose first ``num_planned`` tokens are in ``blocks``, or will be
        when this plan's work begins."""
        seq.transition(SequenceStatus.RUNNING)
        self._rows.open(seq, num_planned, blocks)
        seq.num_planned = num_planned
        seq.num_computed = num_computed
        is_spelt_out = seq.is_steered or seq.constraint is not None
        seq.num_given = SPELT_OUT if is_spelt_out else seq.num_tokens
        seq.num_owned = 0

    def _work(self, seq: Sequence, num_tokens: int, draft: Draft) -> bool:
        """Add a sequence's next tokens. False, with nothing changed, when blocks lack."""
        start = seq.num_planned
        changes = self._extend(seq, start + num_tokens, start, draft.copies)
        if changes is None:
            return False
        self.add_work(seq, num_tokens, changes[0], changes[1], draft)
        return True

    def _extend(
        self, seq: Sequence, end: int, start: int, copies: list[BlockCopy]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
        """Make positions [start, end) writable; the blocks appended and replaced.

        Once a slot may be written, all slots of its block may, until the table is forked or moved.
        So 31 of 32 decodes ask nobody.
        """
        if end <= seq.num_owned:
            return (), ()
        num_left = self._batch.num_blocks(seq.group)
        if num_left:
            needed = self._blocks.num_blocks_to_grow(seq.seq_id, end, write_from=start)
            if needed and needed + num_left > self._blocks.num_available:
                return None
        growth = self._blocks.grow(seq.seq_id, end, write_from=start)
        if growth is None:
            return None
        copies += growth.copies
        seq.num_owned = -(-end // self._block_size) * self._block_size
        return growth.new_blocks, growth.replaced

    def add_work(
        self,
        seq: Sequence,
        num_tokens: int,
        new_blocks: tuple[int, ...],
        replaced: tuple[tuple[int, int], ...],
        draft: Draft,
    ) -> None:
        """Plan a sequence's next tokens, for which it has the blocks."""
        start = seq.num_planned
        end = start + num_tokens
        row = seq.row
        if row is None:
            raise CorruptState(f"sequence {seq.seq_id} is running without a row")
        known = len(seq.token_ids) + seq.num_inflight_samples
        samples = end == known
        seq.num_before = start
        seq.step_id = draft.step_id
        draft.workers.append((seq, seq.epoch))
        if start >= seq.num_given:  # a decode: the row has sampled this token itself
            draft.work.append(RowWork(row, start, num_tokens, (), new_blocks, True, (), replaced))
            seq.num_planned = end
            seq.num_inflight_samples += 1
            draft.budget -= 1
            draft.num_context_tokens += end
            return
        token_ids = tuple(seq.token_ids[start:end])
        targets: tuple[int, ...] = ()
        if seq.num_scored < seq.num_to_score:  # then nothing is sampled yet: all is prompt
            targets = tuple(seq.token_ids[start + 1 : end + 1])
        mask = _allowed(seq, samples)
        draft.work.append(
            RowWork(
                row,
                start,
                num_tokens,
                token_ids,
                new_blocks,
                samples,
                targets,
                replaced,
                None,
                mask,
            )
        )
        lag = known - start
        if not samples:
            draft.num_partial += 1
            draft.cut_short.append(len(draft.work) - 1)
        if lag > 1:
            self._account(seq, num_tokens, end, draft)
        else:
            seq.num_planned = end
            draft.budget -= 1
        draft.num_context_tokens += end
        if samples:
            self._sampled(seq, end, draft)

    def _account(self, seq: Sequence, num_tokens: int, end: int, draft: Draft) -> None:
        seq.num_planned = end
        draft.budget -= num_tokens
        draft.prefill_left -= num_tokens
        if _is_promoted(seq.group):
            draft.num_kept_back = max(0, draft.num_kept_back - num_tokens)
        draft.num_prefill_tokens += num_tokens

    def _sampled(self, seq: Sequence, end: int, draft: Draft) -> None:
        if seq.is_steered:
            return
        seq.num_inflight_samples += 1
        if end == seq.num_prompt and len(seq.group.sequences) > 1:
            self._split(seq, end, draft)

    def _split(self, leader: Sequence, end: int, draft: Draft) -> None:
        """The prompt ends in this plan: the samples that have nothing of their own yet part from it
        here. They take references to its blocks and sample from its logits; nothing is computed
        twice and no block is copied before two of them write to it."""
        if leader.row is None:
            raise CorruptState(f"sequence {leader.seq_id} is running without a row")
        for seq in leader.group.sequences:
            parts = seq.row is None and not seq.is_finished and seq.num_tokens == end
            if not parts or not self._rows.num_free:
                continue
            table = self._blocks.fork(leader.seq_id, seq.seq_id)
            leader.num_owned = 0
            self.open(seq, end, table, num_computed=leader.num_computed)
            seq.num_before = leader.num_before
            seq.step_id = draft.step_id
            seq.num_inflight_samples = 1
            if seq.row is None:
                raise CorruptState(f"sequence {seq.seq_id} was opened without a row")
            mask = _allowed(seq, True)
            draft.work.append(
                RowWork(seq.row, end, 0, samples=True, logits_of=leader.row, allowed=mask)
            )
            draft.workers.append((seq, seq.epoch))


def _is_promoted(group: SequenceGroup) -> bool:
    return group.rank[0] == PROMOTED_BAND


def _allowed(seq: Sequence, samples: bool) -> bytes:
    """What a work of this sequence may sample."""
    return seq.constraint.allowed() if samples and seq.constraint is not None else b""
