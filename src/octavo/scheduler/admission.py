# SPDX-License-Identifier: Apache-2.0
"""Who starts, or comes back from the swap pool, once the running ones are served."""

from __future__ import annotations

from octavo.cache.block_manager import AllocStatus, BlockManager
from octavo.scheduler.batch_reserve import BatchReserve
from octavo.scheduler.delay import DelayFactor
from octavo.scheduler.draft import Draft
from octavo.scheduler.policy import PROMOTED_BAND, Policy, outranks, preemption_gap
from octavo.scheduler.prefix_wait import who_computes
from octavo.scheduler.pressure import Pressure
from octavo.scheduler.queues import Queues
from octavo.scheduler.reserve import Reserve
from octavo.scheduler.service import Service
from octavo.scheduler.static_batch import StaticBatch
from octavo.types.config import SchedulerConfig
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus

# How long a look-up is good enough to compare groups by. Comparing 64 prompts with a common
# thousand tokens in the cache takes 2,000 digests, too much for every step; starting looks anew.
REMEMBERED_PASSES = 8


class Starter:
    """Starts groups in the order of one priority function, waiting and swapped ones compared alike.

    Who does not fit is passed by others that do, for a while: at most ``lookahead_window`` are
    tried, and once ``max_overtakes`` groups have passed the first in line, or so many steps as
    ``max_overtake_steps`` after the first of them did, nobody starts before it does. So its delay
    is bounded by the run of so many groups, all of them begun within so many steps.
    """

    def __init__(
        self,
        queues: Queues,
        blocks: BlockManager,
        service: Service,
        *,
        policy: Policy,
        delay: DelayFactor,
        batch: BatchReserve,
        pressure: Pressure,
        config: SchedulerConfig,
    ) -> None:
        self.reserve = Reserve(blocks, config.admission_reserve, config.max_model_len)
        self.static_batch: StaticBatch | None = None
        if config.batching == "static":
            self.static_batch = StaticBatch(blocks, self.reserve, max_num_seqs=config.max_num_seqs)
        self.blocked: SequenceGroup | None = None  # the first in line, when it could not start
        self._found: dict[int, tuple[int, int]] = {}  # by seniority: pass, cached tokens
        self._num_passes = 0
        self._is_held = False  # because blocks were short a moment ago
        self._seats = 0  # sequences that may still start in this plan
        self._queues = queues
        self._blocks = blocks
        self._service = service
        self._policy = policy
        self._delay = delay
        self._batch = batch
        self._pressure = pressure
        self._config = config
        self._gap = preemption_gap(config)
        self._long = config.long_prefill_token_threshold or config.max_num_batched_tokens

    def start_groups(self, draft: Draft, now: float) -> None:
        """Start whom limits, budget and blocks allow."""
        head: SequenceGroup | None = None
        self.blocked = None
        num_tried = 0
        self._num_passes += 1
        if len(self._found) > 4 * self._config.admission_window:
            self._found.clear()
        self._is_held = self._pressure.is_on()
        self._seats = self._config.max_num_seqs - self._queues.num_seats_taken()
        if self._seats < 1 and self._queues.running:
            if (
                self.static_batch is None
            ):  # else whoever waits could not start on a free seat either
                self.blocked = self._queues.waiting.first or self._queues.swapped.first
            return
        candidates = self._candidates(now)
        if self.static_batch is not None:
            candidates = self.static_batch.pick(candidates, self._queues.running)
        for group in candidates:
            if draft.budget < 1 or draft.num_partial >= self._config.max_num_partial_prefills:
                return
            is_promoted = group.rank[0] == PROMOTED_BAND
            if draft.share(is_promoted) < 1 and group in self._queues.waiting:
                continue  # the step is full of prompts: nobody is kept out by blocks
            is_long = self.is_long(group)
            if is_long and draft.num_long >= self._config.max_long_partial_prefills:
                continue  # nor here: another long prompt is in the making, and will end
            if head is not None:
                num_tried += 1
                too_far = num_tried > self._config.lookahead_window
                if too_far or self._is_owed(head, draft.step_id):
                    return
            num_awaiting = draft.num_awaiting
            if not self._may_join(group):
                continue  # a limit of its own: nobody is in the way
            if not self._is_let_in(group) or not self._start(group, draft, now):
                if draft.num_awaiting > num_awaiting:
                    continue  # by choice, and not for long
                self.blocked = head = head or group
                continue
            draft.num_long += is_long
            group.num_overtakes = 0
            group.overtaken_step = None
            if head is not None:
                head.num_overtakes += 1
                head.overtaken_step = head.overtaken_step or draft.step_id

    def _is_owed(self, head: SequenceGroup, step_id: int) -> bool:
        """Has the first in line been passed by so many, or for so long, that all wait for it?"""
        if head.num_overtakes >= self._config.max_overtakes:
            return True
        steps_max, since = self._config.max_overtake_steps, head.overtaken_step
        return since is not None and steps_max > 0 and step_id - since >= steps_max

    def _is_let_in(self, group: SequenceGroup) -> bool:
        """While blocks have been short and the high mark is not reached, only groups that are more
        urgent than somebody who runs may start."""
        last = self._queues.running.last
        return last is None or not self._is_held or outranks(group.rank, last.rank, self._gap)

    def num_to_start(self) -> int:
        """Waiting groups that may start when there is room."""
        waiting = self._queues.waiting
        return (
            len(waiting) if self.static_batch is None else self.static_batch.num_to_start(waiting)
        )

    def is_long(self, group: SequenceGroup) -> bool:
        """Has the group a prompt to compute that many steps are needed for?"""
        return any(
            seq.num_tokens - max(seq.num_planned, seq.num_kept) > self._long
            for seq in group.sequences
            if not seq.is_finished
        )

    def num_uncached(self, group: SequenceGroup) -> int:
        seqs = group.unfinished
        return max(1, seqs[0].num_tokens - self.num_cached(group)) if seqs else 0

    def num_cached(self, group: SequenceGroup) -> int:
        seq = group.unfinished[0]
        if seq.status is SequenceStatus.SWAPPED:
            return seq.num_planned
        if seq.num_kept:
            return seq.num_kept
        found = self._found.get(group.seniority)
        if found is not None and self._num_passes - found[0] < REMEMBERED_PASSES:
            return found[1]
        key, tokens = self._service.key(group), self._service.findable(seq)
        num_cached = self._blocks.probe(key, tokens).num_cached_tokens
        self._found[group.seniority] = (self._num_passes, num_cached)
        return num_cached

    def num_blocks(self, group: SequenceGroup) -> int:
        return self.reserve.num_blocks_for(group)

    def _candidates(self, now: float) -> list[SequenceGroup]:
        """The groups to try, in order. A window bounds the cost when thousands wait."""
        queues, policy, window = self._queues, self._policy, self._config.admission_window
        waiting = policy.shortlist(queues.waiting, window)
        swapped = queues.swapped.head(window)
        if waiting and not self._has_passed_delay(waiting, now):
            waiting = []
        if policy.is_static and not swapped:
            return waiting  # they are kept in this order
        keys = {
            group.seniority: policy.key(group, now, self) - policy.swapped_bonus * is_swapped
            for groups, is_swapped in ((waiting, False), (swapped, True))
            for group in groups
        }
        # The promoted are first come, first served, whatever the policy.
        return sorted(
            [*waiting, *swapped],
            key=lambda group: (
                group.rank[0],
                group.arrival_time if group.rank[0] < 0 else keys[group.seniority],
                group.seniority,
            ),
        )

    def _has_passed_delay(self, waiting: list[SequenceGroup], now: float) -> bool:
        if self._delay.factor <= 0:
            return True
        waited = now - min(group.arrival_time for group in waiting)
        return self._delay.has_passed(waited, is_idle=not self._queues.running)

    def _start(self, group: SequenceGroup, draft: Draft, now: float) -> bool:
        """Start one group, whole or only its first sequence; False, with nothing changed, if not.

        An engine that runs nobody keeps nothing back: whoever fits alone, starts.
        """
        running = self._queues.running
        is_idle = not running
        if not is_idle and group.num_seats + self._batch.num_seats(group) > self._seats:
            return False
        if any(seq.status is SequenceStatus.SWAPPED for seq in group.sequences):
            return self._swap_in(group, draft, is_idle)
        leader = group.unfinished[0]
        key, tokens = self._service.key(group), self._service.findable(leader)
        probe = self._blocks.probe(key, tokens)
        num_cached = max(leader.num_kept, probe.num_cached_tokens)
        if self._awaits_prefix(leader, num_cached):
            draft.num_awaiting += 1
            return False
        if not is_idle and not self._fits(group, num_cached):
            return False
        if not self._service.start(leader, draft, num_cached=num_cached, ignore_watermark=is_idle):
            return False
        self._seats -= group.num_seats
        self._queues.waiting.remove(group)
        running.add(group)
        if group.first_scheduled_time is None:
            group.first_scheduled_time = now
            group.num_cached_tokens = probe.num_cached_tokens
        return True

    def _awaits_prefix(self, seq: Sequence, num_cached: int) -> bool:
        """Is somebody computing what it begins with? A less urgent one inherits its class, so that
        nothing between the two in rank delays both."""
        if not self._blocks.prefix_caching or seq.num_scored < seq.num_to_score:
            return False
        running = self._queues.running
        other = who_computes(seq, num_cached, running, self._blocks.block_size)
        if other is not None and other.rank[0] > max(0.0, seq.group.rank[0]):
            self._queues.inherit(other, max(0.0, seq.group.rank[0]))
        return other is not None

    def _fits(self, group: SequenceGroup, num_cached: int) -> bool:
        """Are there blocks for what the group is counted for, beside what others were promised?"""
        found = self.reserve.num_useful(group.unfinished[0], num_cached)
        needed = self.reserve.num_blocks_for(group) - found
        promised = self.reserve.num_promised(self._queues.running)
        left = max(self._blocks.num_watermark_blocks, self._batch.num_blocks(group))
        return needed + promised + left <= self._blocks.num_available

    def _may_join(self, group: SequenceGroup) -> bool:
        """Are there few enough sequences that have begun and not ended? O(groups)."""
        most = self._config.max_num_active_seqs
        if most is None or group.first_scheduled_time is not None or not self._queues.running:
            return True
        num_begun = self._queues.num_seats_taken() + sum(
            other.num_seats
            for queue in (self._queues.waiting, self._queues.swapped)
            for other in queue
            if other.first_scheduled_time is not None
        )
        return num_begun + group.num_seats <= most

    def _swap_in(self, group: SequenceGroup, draft: Draft, is_idle: bool) -> bool:
        """Bring a swapped group back, with a block of growth for each sequence so that it does not
        go out again at once. Its steps in flight must have landed: the next plan spells out the
        last token, which is still on its way until then.
        """
        seqs = [seq for seq in group.sequences if seq.status is SequenceStatus.SWAPPED]
        if group in draft.swapped_out or not all(seq.is_settled for seq in seqs):
            return False
        seq_ids = [seq.seq_id for seq in seqs]
        extra = len(seqs) + self.reserve.num_promised(self._queues.running)
        extra += self._batch.num_blocks(group)
        status = self._blocks.swap_in_status(seq_ids, extra_blocks=extra)
        if not is_idle and status is not AllocStatus.OK:
            return False
        moves = self._blocks.swap_in(seq_ids, ignore_watermark=is_idle)
        if moves is None:
            return False
        draft.swap_ins += moves.pairs
        for seq in seqs:
            self._service.resume(seq, moves.tables[seq.seq_id])
            draft.swapped_in.append((seq, seq.epoch))
        self._seats -= group.num_seats
        self._queues.swapped.remove(group)
        self._queues.running.add(group)
        if not self._service.serve(group, draft):
            draft.is_short = True
        return True
