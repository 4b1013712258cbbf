# SPDX-License-Identifier: Apache-2.0
"""Who runs in the next step."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.audit import check_scheduler
from octavo.scheduler.deadlines import Deadlines
from octavo.scheduler.draft import Flight
from octavo.scheduler.pace import Pace
from octavo.scheduler.planner import Planner
from octavo.scheduler.policy import band, make_policy
from octavo.scheduler.preemption import PreemptionCounts
from octavo.scheduler.promotion import Promotion
from octavo.scheduler.queues import Queues, RankedQueue
from octavo.scheduler.rows import Rows
from octavo.types.config import SchedulerConfig
from octavo.types.errors import CorruptState
from octavo.types.outputs import FinishReason
from octavo.types.ports import Constraint
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import RowResult, StepPlan, StepResult


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
    """Continuous batching over three queues, without phases.

    A group is in ``waiting``, ``running`` or ``swapped``; only sequences of running groups have
    rows; ``check`` proves it. Every plan returned must be submitted, and every result committed (or
    declared failed) in the same order. It reads no clock. Not thread-safe: one thread owns it.

    Why it always goes on: running groups are served in the order of their rank, which does not
    change while they run, and blocks are only taken from groups behind the one that needs them and
    from those that do not run. So the first in rank keeps what it has and computes in every step in
    which it can; admission has made sure that it could finish alone; hence it ends, and another is
    first. When nobody runs, the first in line starts without regard to any reserve, and if others
    still hold too much of the device for that, they give it up.
    """

    def __init__(self, blocks: BlockManager, config: SchedulerConfig, *, num_rows: int) -> None:
        self.pace = Pace(config)
        self.policy = make_policy(config)
        self._counts_service = config.scheduling_policy == "fair"
        config = replace(config, max_num_seqs=min(config.max_num_seqs, num_rows))
        self._blocks = blocks
        self._queues = Queues()
        self._rows = Rows(num_rows)
        self._planner = Planner(
            self._queues, blocks, self._rows, policy=self.policy, pace=self.pace, config=config
        )
        self._preemptor = self._planner.preemptor
        self._deadlines = Deadlines()
        self._promotion = Promotion(self._queues.waiting, config.max_queue_wait_s)
        self._flights: deque[Flight] = deque()
        self._next_step_id = 1

    @property
    def waiting(self) -> RankedQueue:
        return self._queues.waiting

    @property
    def running(self) -> RankedQueue:
        return self._queues.running

    @property
    def swapped(self) -> RankedQueue:
        return self._queues.swapped

    @property
    def num_inflight(self) -> int:
        """Plans returned by ``plan`` whose result has not been committed."""
        return len(self._flights)

    @property
    def num_preemptions(self) -> int:
        counts = self._preemptor.counts
        return counts.num_swaps + counts.num_recomputes

    @property
    def preemptions(self) -> PreemptionCounts:
        return self._preemptor.counts

    @property
    def num_promotions(self) -> int:
        """Groups that have waited longer than ``max_queue_wait_s``."""
        return self._promotion.num_promoted

    @property
    def num_padding_tokens(self) -> int:
        """Tokens that a padded engine would have computed beside ours for the same static batches;
        0 under continuous batching, which never waits for a longest one."""
        batch = self._planner.starter.static_batch
        return 0 if batch is None else batch.num_padding_tokens

    @property
    def num_promised_blocks(self) -> int:
        """Blocks that running groups are counted for and do not hold yet. O(running sequences)."""
        return self._planner.starter.reserve.num_promised(self.running)

    @property
    def blocked(self) -> SequenceGroup | None:
        """The first in line, if the last plan could not start it: blocks or seats are short."""
        return self._planner.starter.blocked

    @property
    def has_groups(self) -> bool:
        return bool(self.waiting) or bool(self.running) or bool(self.swapped)

    def add(self, group: SequenceGroup) -> None:
        """File a new group. Admission has made sure that it fits into an empty pool."""
        self.policy.added(group)
        static = self.policy.is_static
        key = self.policy.key(group, 0.0, self._planner.starter) if static else group.arrival_time
        group.rank = (band(group), key, group.seniority)
        self.waiting.add(group)
        self._deadlines.add(group)
        self._promotion.watch(group)

    def expire(self, now: float) -> list[SequenceGroup]:
        """Groups that have missed a time limit of their request; the caller finishes them."""
        return self._deadlines.expired(now)

    def force_preempt(self, group: SequenceGroup) -> None:
        """Preempt a running group in the next plan, memory short or not: for tests of whole
        engines, whose answers it must not change."""
        self._planner.to_preempt.append(group)

    def preempt_all(self) -> None:
        """Everybody gives up all that was computed for them, at once and by recompute: nothing of
        the KV cache is in use then but what the steps in flight still touch.

        For an operator who resets the cache. It does not count against ``max_preemptions``: no
        group has been pushed aside by another. O(blocks held).
        """
        self._preemptor.drop_all()

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Open ``child``, a new sequence of the parent's group whose tokens begin with all that the
        parent has computed, on references to the parent's blocks. O(blocks), nothing is copied.

        For beam search: both are steered, and the caller has appended the tokens it has chosen.
        Raises ``CorruptState`` when no row is free; ``num_seqs_max`` of the group prevents that.
        """
        self._planner.siblings.fork(parent, child)

    def plan(self, now: float) -> StepPlan | None:
        """Decide which tokens the next step computes; None when there is nothing to compute yet.

        Running groups go first, then whoever may start or come back. A plan may have transfers and
        no work, when somebody had to make room before anybody could go on.
        """
        self._promotion.promote(now)
        draft = self._planner.draft(self._next_step_id, now, num_inflight=len(self._flights))
        if not (draft.work or draft.swap_outs or draft.swap_ins):
            return None
        closed, opened = self._rows.take_changes()
        plan = StepPlan(
            draft.step_id,
            closed=closed,
            opened=opened,
            swap_ins=tuple(draft.swap_ins),
            swap_outs=tuple(draft.swap_outs),
            copies=tuple(draft.copies),
            work=tuple(draft.work),
        )
        self._next_step_id += 1
        self._flights.append(
            Flight(
                plan,
                tuple(draft.workers),
                tuple(draft.swapped_in),
                draft.num_prefill_tokens,
                draft.num_context_tokens,
            )
        )
        self._blocks.step_submitted(plan.step_id)
        return plan

    def commit(self, result: StepResult) -> list[Progress]:
        """Take in the result of the oldest step in flight.

        Tokens are appended, progress is confirmed and full blocks become findable here and nowhere
        else. Results of sequences that were finished or have dropped their blocks after the plan
        was made are dropped too: the draw is keyed by position, so a preempted sequence will sample
        the very same token again. Those of swapped sequences count: their blocks hold them.
        """
        flight = self._land(result.step_id)
        if len(result.rows) != len(flight.workers):
            raise CorruptState(
                f"step {result.step_id} planned {len(flight.workers)} rows, got {len(result.rows)}"
            )
        progress = []
        block_size = self._blocks.block_size
        for (seq, epoch), work, row in zip(
            flight.workers, flight.plan.work, result.rows, strict=True
        ):
            if row.row != work.row:
                raise CorruptState(f"step {result.step_id}: got row {row.row}, wanted {work.row}")
            if seq.epoch != epoch:
                continue
            before = seq.num_computed
            after = seq.num_computed = work.start + work.num_tokens
            if work.samples and not seq.is_steered:
                seq.num_inflight_samples -= 1
                sampled = row.token_id
                if seq.constraint is not None:
                    row = _constrained(row, seq.constraint)
                if row.token_id is not None:
                    seq.token_ids.append(row.token_id)
                    if row.token_id != sampled:
                        self._renew_row(seq)
                elif row.error is None:
                    raise CorruptState(f"step {result.step_id}: row {row.row} has no token")
            if row.error is None and after // block_size > before // block_size:
                self._planner.service.confirm(seq)
            progress.append(Progress(seq, row, work.num_tokens, work.start + 1))
        self.pace.learn(flight, result.compute_s + result.swap_s)
        if self._counts_service:
            self._count_service(progress)
        return progress

    def fail_step(self) -> list[Sequence]:
        """The oldest step in flight has failed: who is lost with it. The caller finishes them.

        Groups that only relied on blocks which it should have moved are not lost: they compute
        them again.
        """
        flight = self._land(self._flights[0].plan.step_id, failed=True)
        if flight.plan.swap_ins or flight.plan.swap_outs:
            self._distrust_swaps()
        lost = dict(flight.workers) | dict(flight.swapped_in)
        return [seq for seq, epoch in lost.items() if seq.epoch == epoch]

    def finish(self, seq: Sequence, reason: FinishReason, stop_reason: int | str | None) -> None:
        """The one terminal transition, whatever the reason and state: everything is given back."""
        group = seq.group
        seq.transition(SequenceStatus.FINISHED)
        queue = self._queues.home(group)
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            self._planner.starter.reserve.observe(group, seq.num_outputs)
        self._rows.close(seq)
        seq.forget_row()
        self._blocks.free(seq.seq_id)
        seq.finish_reason = reason
        seq.stop_reason = stop_reason
        if group.is_finished:
            queue.remove(group)
            self.policy.ended(group)
        elif queue is self.swapped and not _is_swapped(group):
            queue.remove(group)
            self.waiting.add(group)

    def check(self) -> None:
        """Raise ``CorruptState`` unless queues, rows and blocks agree. O(everything): tests, idle
        time.
        """
        check_scheduler(self._queues, self._rows, self._blocks)

    def _distrust_swaps(self) -> None:
        """A step with transfers has failed. Copies are shared, by groups that left in other steps
        and by groups that have come back in steps in flight, so none of them can be trusted."""
        for group in list(self.swapped):
            self._preemptor.drop_swapped(group)
        for flight in self._flights:
            for seq, epoch in flight.swapped_in:
                if seq.epoch == epoch:  # its group stays in the queue and opens them again
                    self._drop_open(seq.group)

    def _drop_open(self, group: SequenceGroup) -> None:
        for seq in group.sequences:
            if seq.row is not None:
                self._preemptor.drop(seq)

    def _renew_row(self, seq: Sequence) -> None:
        """The row has appended the token that it sampled to its history: it begins anew, on the
        same blocks and with the true one."""
        table = self._blocks.table(seq.seq_id)
        if seq.row is not None and seq.sampling.needs_history and table is not None:
            self._rows.close(seq)
            self._rows.open(seq, seq.num_planned, tuple(table.ids))

    def _count_service(self, progress: list[Progress]) -> None:
        for step in progress:
            has_token = step.result.token_id is not None
            num_prompt = step.num_tokens if step.num_tokens > 1 or not has_token else 0
            self.policy.served(step.seq.group, num_prompt, int(has_token))

    def _land(self, step_id: int, *, failed: bool = False) -> Flight:
        """The oldest flight, which must be this step. Its fence falls."""
        if not self._flights or self._flights[0].plan.step_id != step_id:
            expected = self._flights[0].plan.step_id if self._flights else None
            raise CorruptState(f"got the result of step {step_id}, wanted {expected}")
        self._blocks.step_completed(step_id, failed=failed)
        return self._flights.popleft()


def _constrained(row: RowResult, constraint: Constraint) -> RowResult:
    """The token that the sequence gets, which may be another than was sampled; a grammar that fails
    is an error of this row alone."""
    if row.token_id is None:
        return row
    try:
        return replace(row, token_id=constraint.accept(row.token_id))
    except Exception as error:
        return RowResult(row.row, error=f"the grammar of the answer failed: {error}")


def _is_swapped(group: SequenceGroup) -> bool:
    return any(seq.status is SequenceStatus.SWAPPED for seq in group.sequences)
