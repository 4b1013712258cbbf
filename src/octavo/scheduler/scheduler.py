# SPDX-License-Identifier: Apache-2.0
"""Who runs in the next step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from octavo.cache.block_manager import AllocStatus, BlockManager
from octavo.scheduler.queues import SeniorityQueue
from octavo.types.errors import CorruptState
from octavo.types.outputs import FinishReason
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import RowOpen, RowResult, RowWork, StepPlan, StepResult


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    budget: int  # tokens that may still be added
    opened: list[RowOpen] = field(default_factory=list)
    work: list[RowWork] = field(default_factory=list)
    # Who does the work, and in which of its lives: a result is stale when the epoch has changed.
    workers: list[tuple[Sequence, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A plan that the executor has and whose result it has not given back."""

    plan: StepPlan
    workers: tuple[tuple[Sequence, int], ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """What one row's work gave to a sequence that still wants it.

    ``num_tokens`` were computed; the first entry of ``result.scored`` is for position
    ``first_scored``.
    """

    seq: Sequence
    result: RowResult
    num_tokens: int
    first_scored: int


class Scheduler:
    """First come, first served, continuous batching, without phases.

    A group is in ``waiting`` or in ``running``, and only sequences of running groups hold blocks
    and rows; ``check`` proves it. Every plan returned must be submitted, and every result committed
    (or declared failed) in the same order. Not thread-safe: one thread owns it.
    """

    def __init__(
        self, blocks: BlockManager, *, num_rows: int, max_num_seqs: int, max_num_batched_tokens: int
    ) -> None:
        self.waiting = SeniorityQueue()
        self.running = SeniorityQueue()
        self.num_preemptions = 0
        self._blocks = blocks
        self._max_num_seqs = min(max_num_seqs, num_rows)
        self._step_tokens_max = max_num_batched_tokens
        self._num_running_seqs = 0
        self._free_rows = list(range(num_rows - 1, -1, -1))
        self._num_rows = num_rows
        self._closed: list[int] = []  # rows given up since the last plan
        self._flights: deque[_Flight] = deque()
        self._next_step_id = 1

    @property
    def num_inflight(self) -> int:
        """Plans returned by ``plan`` whose result has not been committed."""
        return len(self._flights)

    @property
    def has_groups(self) -> bool:
        return bool(self.waiting) or bool(self.running)

    def add(self, group: SequenceGroup) -> None:
        """File a new group. Admission has made sure that it fits into an empty pool."""
        self.waiting.add(group)

    def plan(self, now: float) -> StepPlan | None:
        """Decide which tokens the next step computes; None when there is nothing to compute yet.

        Prefill, chunked prefill, recompute after preemption and decode are one case: a sequence
        lags by some tokens and a step may compute ``max_num_batched_tokens`` of them. Running
        groups go first, the most senior first, so that a full pool still lets the oldest finish;
        and whoever is admitted could finish alone. Together that excludes livelock.
        """
        draft = _Draft(self._step_tokens_max)
        if self._serve_running(draft):  # else memory is short, and admitting would only thrash
            self._admit_waiting(draft, now)
        if not draft.work:
            return None
        plan = StepPlan(
            self._next_step_id,
            closed=tuple(self._closed),
            opened=tuple(draft.opened),
            work=tuple(draft.work),
        )
        self._next_step_id += 1
        self._closed.clear()
        self._flights.append(_Flight(plan, tuple(draft.workers)))
        self._blocks.step_submitted(plan.step_id)
        return plan

    def commit(self, result: StepResult) -> list[Progress]:
        """Take in the result of the oldest step in flight.

        Tokens are appended and progress is confirmed here and nowhere else. Results of sequences
        that were finished or preempted after the plan was made are dropped: the draw is keyed by
        position, so a preempted sequence will sample the very same token again.
        """
        flight = self._land(result.step_id)
        if len(result.rows) != len(flight.workers):
            raise CorruptState(
                f"step {result.step_id} planned {len(flight.workers)} rows, got {len(result.rows)}"
            )
        progress = []
        for (seq, epoch), work, row in zip(
            flight.workers, flight.plan.work, result.rows, strict=True
        ):
            if row.row != work.row:
                raise CorruptState(f"step {result.step_id}: got row {row.row}, wanted {work.row}")
            if seq.epoch != epoch:
                continue
            seq.num_computed = work.start + work.num_tokens
            if work.samples:
                seq.num_inflight_samples -= 1
                if row.token_id is not None:
                    seq.token_ids.append(row.token_id)
                elif row.error is None:
                    raise CorruptState(f"step {result.step_id}: row {row.row} has no token")
            progress.append(Progress(seq, row, work.num_tokens, work.start + 1))
        return progress

    def fail_step(self) -> list[Sequence]:
        """The oldest step in flight has failed: who is lost with it. The caller finishes them."""
        flight = self._land(self._flights[0].plan.step_id)
        return [seq for seq, epoch in flight.workers if seq.epoch == epoch]

    def finish(self, seq: Sequence, reason: FinishReason, stop_reason: int | str | None) -> None:
        """The one terminal transition, whatever the reason and state: everything is given back."""
        queue = self.running if seq.status is SequenceStatus.RUNNING else self.waiting
        self._give_up_memory(seq)
        seq.transition(SequenceStatus.FINISHED)
        seq.finish_reason = reason
        seq.stop_reason = stop_reason
        if seq.group.is_finished:
            queue.remove(seq.group)

    def check(self) -> None:
        """Raise ``CorruptState`` unless queues, rows and blocks agree. O(everything): tests, idle
        time.
        """
        running = [seq for group in self.running for seq in group.sequences if not seq.is_finished]
        waiting = [seq for group in self.waiting for seq in group.sequences if not seq.is_finished]
        wrong = [seq.seq_id for seq in running if seq.status is not SequenceStatus.RUNNING]
        wrong += [seq.seq_id for seq in waiting if seq.status is SequenceStatus.RUNNING]
        if wrong:
            raise CorruptState(f"sequences {wrong} are in a queue that is not their status")
        rows = sorted([*self._free_rows, *(seq.row for seq in running if seq.row is not None)])
        if rows != list(range(self._num_rows)) or len(running) != self._num_running_seqs:
            raise CorruptState(
                f"{len(self._free_rows)} free rows and {len(running)} running sequences"
                f" (counted {self._num_running_seqs}) of {self._num_rows} rows"
            )
        self._blocks.check({seq.seq_id for seq in running})

    def _serve_running(self, draft: _Draft) -> bool:
        """Give running groups their tokens. False when memory was short, preempting or waiting."""
        enough = True
        idx = 0
        # Victims come off the young end and we walk from the old end, so a victim never already has
        # work in this plan. The loop ends when the two meet.
        while idx < len(self.running) and draft.budget > 0:
            group = self.running[idx]
            if self._serve_group(group, draft):
                idx += 1
                continue
            enough = False
            if self._memory_arrives(group, draft.budget):
                idx += 1  # blocks in limbo are enough, and preempting would free nothing sooner
            else:
                self._preempt(self.running[len(self.running) - 1])
        return enough

    def _serve_group(self, group: SequenceGroup, draft: _Draft) -> bool:
        """Plan the next tokens of a running group; False, with nothing planned, if blocks lack.

        A group has one unfinished sequence (admission refuses more), so all or nothing is free.
        """
        for seq in group.sequences:
            start = seq.num_planned
            known = len(seq.token_ids) + seq.num_inflight_samples
            # The token that ends a sequence by length is never computed, only sampled.
            if start == known or known >= seq.num_tokens_max:
                continue
            num_tokens = min(known - start, draft.budget)
            new_blocks = self._blocks.grow(seq.seq_id, start + num_tokens)
            if new_blocks is None:
                return False
            self._add_work(seq, num_tokens, new_blocks, draft)
        return True

    def _add_work(
        self, seq: Sequence, num_tokens: int, new_blocks: tuple[int, ...], draft: _Draft
    ) -> None:
        start = seq.num_planned
        end = start + num_tokens
        row = seq.row
        if row is None:
            raise CorruptState(f"sequence {seq.seq_id} is running without a row")
        samples = end == len(seq.token_ids) + seq.num_inflight_samples
        if start >= seq.num_given:  # a decode: the row has sampled this token itself
            work = RowWork(row, start, num_tokens, (), new_blocks, True)
        else:
            token_ids = tuple(seq.token_ids[start:end])
            targets: tuple[int, ...] = ()
            if seq.num_scored < seq.num_to_score:  # then nothing is sampled yet: all is prompt
                targets = tuple(seq.token_ids[start + 1 : end + 1])
            work = RowWork(row, start, num_tokens, token_ids, new_blocks, samples, targets)
        if samples:
            seq.num_inflight_samples += 1
        seq.num_planned = end
        draft.budget -= num_tokens
        draft.work.append(work)
        draft.workers.append((seq, seq.epoch))

    def _admit_waiting(self, draft: _Draft, now: float) -> None:
        """Start waiting groups, the most senior first, until a limit or the first that must wait.

        A group starts only when all its known tokens fit now, not just its first chunk: half a
        prompt in a full pool would be preempted before it has produced anything.
        """
        while draft.budget > 0:
            group = self.waiting.oldest
            if group is None:
                return
            unfinished = [seq for seq in group.sequences if not seq.is_finished]
            num_tokens = sum(seq.num_tokens for seq in unfinished)
            if self._num_running_seqs + len(unfinished) > self._max_num_seqs:
                return
            if self._blocks.can_allocate(num_tokens) is not AllocStatus.OK:
                return
            self.waiting.remove(group)
            self.running.add(group)
            if group.first_scheduled_time is None:
                group.first_scheduled_time = now
            for seq in unfinished:
                self._open_row(seq, draft)
            if not self._serve_group(group, draft):
                raise CorruptState(f"{num_tokens} tokens fitted and then did not")

    def _open_row(self, seq: Sequence, draft: _Draft) -> None:
        seq.transition(SequenceStatus.RUNNING)
        seq.row = self._free_rows.pop()
        seq.num_given = seq.num_tokens
        self._num_running_seqs += 1
        draft.opened.append(RowOpen(seq.row, seq.sampling))

    def _memory_arrives(self, group: SequenceGroup, budget: int) -> bool:
        """Will the blocks in limbo be enough for the group's next tokens?"""
        return all(
            self._blocks.arriving_covers(
                seq.seq_id, min(seq.num_expected, seq.num_planned + budget)
            )
            for seq in group.sequences
            if not seq.is_finished
        )

    def _preempt(self, group: SequenceGroup) -> None:
        """Take everything back from a running group; it will compute its tokens again."""
        for seq in group.sequences:
            if not seq.is_finished:
                self._give_up_memory(seq)
                seq.transition(SequenceStatus.PREEMPTED)
        self.running.remove(group)
        self.waiting.add(group)
        group.num_preemptions += 1
        self.num_preemptions += 1

    def _give_up_memory(self, seq: Sequence) -> None:
        """Close the row and free the blocks, if there are any."""
        if seq.row is not None:
            self._closed.append(seq.row)
            self._free_rows.append(seq.row)
            self._num_running_seqs -= 1
        seq.forget_row()
        self._blocks.free(seq.seq_id)

    def _land(self, step_id: int) -> _Flight:
        """The oldest flight, which must be this step. Its fence falls."""
        if not self._flights or self._flights[0].plan.step_id != step_id:
            expected = self._flights[0].plan.step_id if self._flights else None
            raise CorruptState(f"got the result of step {step_id}, wanted {expected}")
        self._blocks.step_completed(step_id)
        return self._flights.popleft()
