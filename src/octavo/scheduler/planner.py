# SPDX-License-Identifier: Apache-2.0
"""What goes into the next step, in which order."""

from __future__ import annotations

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.admission import Starter
from octavo.scheduler.batch_reserve import BatchReserve
from octavo.scheduler.draft import Draft
from octavo.scheduler.pace import Pace
from octavo.scheduler.policy import PROMOTED_BAND, Policy
from octavo.scheduler.preemption import Preemptor
from octavo.scheduler.pressure import Pressure
from octavo.scheduler.queues import Queues
from octavo.scheduler.rows import Rows
from octavo.scheduler.service import Service
from octavo.scheduler.siblings import Siblings
from octavo.scheduler.urgency import Urgency
from octavo.types.config import SchedulerConfig
from octavo.types.sequence import SequenceGroup


class Planner:
    """Running groups first, the first in rank first; then samples that branch off, groups that
    start or come back, and last, what is left of the step for prompts whose share was cut."""

    def __init__(
        self,
        queues: Queues,
        blocks: BlockManager,
        rows: Rows,
        *,
        policy: Policy,
        pace: Pace,
        config: SchedulerConfig,
    ) -> None:
        self._batch = BatchReserve(blocks, queues.running, config)
        self.service = Service(blocks, rows, self._batch)
        self.siblings = Siblings(blocks, rows, self.service, self._batch)
        self.preemptor = Preemptor(
            queues,
            blocks,
            rows,
            pace.costs,
            config=config,
        )
        self._pressure = Pressure(blocks, queues.running, config.high_watermark)
        self.starter = Starter(
            queues,
            blocks,
            self.service,
            policy=policy,
            delay=pace.delay,
            batch=self._batch,
            pressure=self._pressure,
            config=config,
        )
        self._has_let_pass = False  # in the last plan, prompts that it did not finish
        self.to_preempt: list[SequenceGroup] = []  # in the next plan, whether it must be or not
        self._urgency = Urgency(queues, self.preemptor, config)
        self._queues = queues
        self._blocks = blocks
        self._pace = pace
        self._config = config
        share = int(config.prefill_share * config.max_num_batched_tokens)
        self._prefill_max = max(share, config.min_prefill_tokens)  # beside decodes

    def draft(self, step_id: int, now: float, *, num_inflight: int) -> Draft:
        """The next step. Without work and transfers when nothing can go on before a step lands."""
        draft = Draft(step_id, self._config.max_num_batched_tokens)
        self._fill(draft, now, num_inflight)
        while not (draft.work or draft.swap_outs or num_inflight) and self._free_more(draft):
            self._fill(draft, now, num_inflight)
        self._has_let_pass = draft.has_let_pass
        return draft

    def _share_out(self, draft: Draft, now: float) -> None:
        """Set aside a token for each running sequence that decodes; prompts get of the rest what
        the latency targets allow."""
        num_decodes = num_context = 0
        draft.num_sharers = draft.num_partial = draft.num_long = 0
        for group in self._queues.running:
            for seq in group.sequences:
                if seq.row is None or seq.awaits_token:
                    continue
                lag = len(seq.token_ids) + seq.num_inflight_samples - seq.num_planned
                if lag == 1:
                    num_decodes += 1
                    num_context += seq.num_planned
                elif lag > 1:
                    draft.num_sharers += 1
                    draft.num_long += self.starter.is_long(group)
        limit = self._pace.prefill_limit(num_context, self._queues.waiting, now)
        draft.prefill_left = max(0, min(limit, draft.budget - num_decodes))
        if num_decodes:
            draft.prefill_left = min(draft.prefill_left, self._prefill_max)
        if self.starter.blocked is None:  # else whoever waits could not use a share
            room = max(0, self._config.max_num_partial_prefills - draft.num_sharers)
            draft.num_sharers += min(room, self.starter.num_to_start())
        kept_back = self._config.promoted_share if self._has_promoted() else 0.0
        draft.num_kept_back = int(kept_back * draft.prefill_left)
        # Not twice running: however many short prompts come, a long one gets every second step.
        draft.lets_pass = draft.num_sharers > 1 and not self._has_let_pass

    def _has_promoted(self) -> bool:
        """Is somebody who has waited too long in line, or at its prompt? The promoted are the first
        of each queue."""
        first = self._queues.waiting.first
        if first is not None and first.rank[0] == PROMOTED_BAND:
            return True
        for group in self._queues.running:
            if group.rank[0] != PROMOTED_BAND:
                return False
            if group.num_outputs == 0:
                return True
        return False

    def _fill(self, draft: Draft, now: float, num_inflight: int) -> None:
        for group in self.to_preempt:
            if group in self._queues.running:
                self.preemptor.preempt(group, draft)
        self.to_preempt.clear()
        if self.starter.blocked is not None and self._config.priority_preemption:
            self._urgency.make_way(self.starter.blocked, draft, num_inflight)
        draft.is_short = False
        self._share_out(draft, now)
        self._serve_running(draft)
        if not draft.is_short:
            self._branch_off(draft)
        if not draft.is_short:  # else memory is short, and admitting would only thrash
            self.starter.start_groups(draft, now)
        if draft.cut_short and draft.prefill_left > 0:
            self.service.top_up(draft)

    def _serve_running(self, draft: Draft) -> None:
        """Give running groups their tokens, the first in rank first.

        Victims come from behind the group that is served, so a victim never has work in this plan.
        The loop ends: each turn serves a group, gives it up for this step, or takes blocks or a
        row from a sequence.
        """
        idx = 0
        running = self._queues.running
        while idx < len(running) and draft.budget > 0:
            group = running[idx]
            if self.service.serve(group, draft):
                idx += 1
                continue
            # What was computed while they were swapped, no commit could give up.
            if any(self.service.confirm(seq) for seq in group.sequences if seq.row is not None):
                continue
            draft.is_short = True
            # When blocks in limbo are enough, preempting would free nothing sooner.
            lacking = self._num_missing(group, draft)
            num_wanted = lacking + self._batch.num_blocks(group)
            if num_wanted < 1 or not self.preemptor.make_room(
                group, idx, draft, num_wanted, only_batch=lacking < 1
            ):
                idx += 1
            else:
                self._pressure.rise()

    def _branch_off(self, draft: Draft) -> None:
        for group in self._queues.running:
            if len(group.sequences) > 1 and not draft.is_short:
                self.siblings.branch_off(group, draft)

    def _num_missing(self, group: SequenceGroup, draft: Draft) -> int:
        """Blocks that one of the group's sequences lacks for its next tokens when those in limbo
        have come back; below 1, they will be enough."""
        chunk = max(1, min(draft.share(), self.service.chunk_max))
        seqs = [seq for seq in group.sequences if seq.row is not None] or group.unfinished[:1]
        return max(
            (
                self._blocks.num_blocks_missing(
                    seq.seq_id,
                    min(seq.num_expected, seq.num_planned + chunk),
                    write_from=seq.num_planned,
                )
                for seq in seqs
                if seq.step_id != draft.step_id
            ),
            default=0,
        )

    def _free_more(self, draft: Draft) -> bool:
        """Blocks are short and nobody can go on: give up what is held for later. False: nothing is.

        Swapped groups may hold device blocks that they shared with sequences which have ended:
        these can be moved out after them, or else the last in rank drops all it has. Pinned
        prefixes are only there to save time, so they go too, before a request would have to.
        """
        if not draft.is_short and self.starter.blocked is None:
            return False
        if self.preemptor.take_kept(self._blocks.num_blocks, apart_from=self.starter.blocked):
            return True
        last = self._queues.swapped.last
        if last is None:
            had_pins = self._blocks.usage().num_pinned > 0
            if had_pins:
                self._blocks.reset_prefix_cache()
            return had_pins
        moves = self._blocks.plan_swap_out(())
        if moves is not None and moves.pairs:
            draft.swap_outs += moves.pairs
        else:
            self.preemptor.drop_swapped(last)
        return True
