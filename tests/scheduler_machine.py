# SPDX-License-Identifier: Apache-2.0
"""Random lives of requests in the scheduler, beside an oracle that knows no scheduler.

The worker is the strict echo, so a plan that breaks the contract is an error, and the answer of a
request is what it would have been alone. Here every call is checked at once: states change along
legal edges only, whoever has ended holds nothing, both tiers add up, and exactly those are lost
with a step that relied on it.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from echo import EchoExecutor, checksum_rule, expected_tokens
from octavo.cache.block_manager import BlockManager
from octavo.cache.cache_key import CacheKey
from octavo.scheduler.scheduler import Progress, Scheduler
from octavo.types.config import SchedulerConfig
from octavo.types.errors import StepFailed
from octavo.types.outputs import FinishReason
from octavo.types.request import Request, ServiceClass
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import RowSampling
from scheduler_settings import settings_drawn
from transitions import CountedMachine

BLOCK_SIZE = 4
DRAIN_STEPS_MAX = 3000
NUM_PROMPTS_KEPT = 4
NUM_GROUPS_MAX = 6  # at a time: more would only wait longer

# As docs/scheduling.md has them.
EDGES = {
    *(("waiting", to) for to in ("running", "finished")),
    ("running", "swapped"),
    ("running", "preempted"),
    ("running", "finished"),
    ("swapped", "running"),
    ("swapped", "preempted"),
    ("swapped", "finished"),
    ("preempted", "running"),
    ("preempted", "finished"),
}

picks = st.integers(0, 1 << 16)


@dataclass
class Life:
    """What the oracle knows of a sequence."""

    seq: Sequence
    answer: list[int]  # that it would give alone; nothing for a beam, which is steered
    status: str = "waiting"
    num_losses: int = 0  # how often it has given up all that it had


@dataclass
class Flight:
    """Who relies on a step: the sequences, each with its losses by then."""

    workers: dict[int, int]
    returned: dict[int, int] = field(default_factory=dict)
    has_swaps: bool = False


class SchedulerMachine(CountedMachine):
    """Every rule is one thing that a client, an operator, or the worker may do."""

    mean_length = 85  # to the end of every request
    seen: ClassVar[Counter[str]] = Counter()  # by all lives together

    @initialize(
        num_blocks=st.integers(3, 9),
        num_swap_blocks=st.sampled_from([5, 20, 20, 2, 0]),
        num_rows=st.integers(2, 6),
        depth=st.integers(1, 3),
        prefix_caching=st.sampled_from([True, True, True, False]),
        config=settings_drawn,
    )
    def begin(
        self,
        num_blocks: int,
        num_swap_blocks: int,
        num_rows: int,
        depth: int,
        prefix_caching: bool,
        config: dict[str, object],
    ) -> None:
        self.config = SchedulerConfig(**config)  # type: ignore[arg-type]
        self.executor = EchoExecutor(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            num_rows=num_rows,
            num_swap_blocks=num_swap_blocks,
            depth=depth,
        )
        self.blocks = BlockManager(
            num_blocks,
            BLOCK_SIZE,
            num_swap_blocks=num_swap_blocks,
            prefix_caching=prefix_caching,
            watermark=0.1,
        )
        self.scheduler = Scheduler(self.blocks, self.config, num_rows=num_rows)
        self.num_rows_max = min(self.config.max_num_seqs, num_rows)
        self.now = 0.0
        self.groups: dict[int, SequenceGroup] = {}  # that have not ended
        self.lives: dict[int, Life] = {}  # ended ones too
        self.ended: list[Life] = []  # by the rule that is being checked
        self.offers: set[int] = set()  # beams that wait for their next token
        self.prompts: deque[list[int]] = deque(maxlen=NUM_PROMPTS_KEPT)
        self.in_flight: deque[Flight] = deque()
        self.returning: list[int] = []  # sequences that the plan being made swaps in

    def unfinished(self) -> list[Sequence]:
        return [seq for group in self.groups.values() for seq in group.unfinished]

    def pick_group(self, number: int) -> SequenceGroup:
        return list(self.groups.values())[number % len(self.groups)]

    # Clients

    @precondition(lambda self: len(self.groups) < NUM_GROUPS_MAX)
    @rule(
        number=picks,
        length=st.integers(1, 30),
        kept=st.integers(0, 30),
        num_samples=st.integers(1, 3),
        num_outputs=st.integers(1, 24),
        is_beam=st.sampled_from([False, False, False, True]),
    )
    def add(
        self,
        number: int,
        length: int,
        kept: int,
        num_samples: int,
        num_outputs: int,
        is_beam: bool,
    ) -> None:
        num_samples = min(num_samples, self.num_rows_max)
        # As admission does: the prompt once and each sample's own blocks fit into an empty pool.
        num_blocks = self.executor.num_blocks
        length_max = (num_blocks - num_samples) * BLOCK_SIZE
        if length_max < 1:
            num_samples, length_max = 1, num_blocks * BLOCK_SIZE - 1
        prompt = self.prompt(number, min(length, length_max), kept)
        shared = len(prompt) // BLOCK_SIZE
        room = ((num_blocks - shared) // num_samples + shared) * BLOCK_SIZE - len(prompt)
        num_beams = num_samples if is_beam else 0
        group = self.make_group(number, prompt, min(room, num_outputs), num_beams)
        for sample_idx in range(1 if is_beam else num_samples):
            sampling = RowSampling(temperature=1.0, seed=number % 7, sample_idx=sample_idx)
            seq = self.make_sequence(group, sampling)
            seq.is_steered = is_beam
            if not is_beam:
                answer = expected_tokens(prompt, group.request.max_tokens, sampling)
                self.lives[seq.seq_id].answer = answer
        self.groups[group.seniority] = group
        self.scheduler.add(group)

    def prompt(self, number: int, length: int, num_kept: int) -> list[int]:
        """Often one that begins as an earlier one did."""
        start = self.prompts[number % len(self.prompts)][:num_kept] if self.prompts else []
        prompt = [*start, *((number * 31 + i * 7) % 256 for i in range(length))][:length]
        self.prompts.append(prompt)
        return prompt

    def make_group(
        self, number: int, prompt: list[int], max_tokens: int, num_beams: int
    ) -> SequenceGroup:
        request = Request(
            request_id=str(len(self.lives)),
            prompt=None,
            prompt_token_ids=tuple(prompt),
            params=SamplingParams(
                prompt_logprobs=0 if number % 4 == 1 and not num_beams else None,
                timeout_s=20.0 if number % 5 == 1 else None,
            ),
            max_tokens=max_tokens,
            eos_token_id=None,
            stop_token_ids=frozenset(),
            priority=number % 3,
            service_class=list(ServiceClass)[number // 3 % len(ServiceClass)],
            user="ab"[number // 9 % 2],
            cache_salt="salt" if number % 11 == 1 else "",
        )
        group = SequenceGroup(request, arrival_time=self.now, seniority=len(self.lives))
        group.num_seqs_max = num_beams
        group.observer = self.observe
        return group

    def make_sequence(self, group: SequenceGroup, sampling: RowSampling) -> Sequence:
        seq = Sequence(len(self.lives), group, sampling)
        group.sequences.append(seq)
        self.lives[seq.seq_id] = Life(seq, [])
        return seq

    def observe(self, seq: Sequence, before: SequenceStatus) -> None:
        life, now = self.lives[seq.seq_id], seq.status.value
        assert life.status == before.value, "a state changed behind the observer's back"
        assert (before.value, now) in EDGES
        self.seen[f"{before.value} to {now}"] += 1
        life.status = now
        life.num_losses += now in ("preempted", "finished")
        if now == "finished":
            self.ended.append(life)
        if before is SequenceStatus.SWAPPED and now == "running":
            self.returning.append(seq.seq_id)

    @precondition(lambda self: self.groups)
    @rule(number=picks, is_abort=st.booleans())
    def end_early(self, number: int, is_abort: bool) -> None:
        """A client leaves, or one sample meets its stop word and the others go on."""
        group = self.pick_group(number)
        seqs = [seq for seq in group.unfinished if seq.num_outputs and not seq.is_steered]
        if is_abort:
            self.end(group, FinishReason.ABORT)
        elif seqs:
            self.scheduler.finish(seqs[number % len(seqs)], FinishReason.STOP, None)
            self.retire(group)
        else:
            self.did_nothing()

    def end(self, group: SequenceGroup, reason: FinishReason) -> None:
        for seq in group.unfinished:
            self.scheduler.finish(seq, reason, None)
        self.retire(group)

    def retire(self, group: SequenceGroup) -> None:
        if group.is_finished:
            del self.groups[group.seniority]
            self.offers.difference_update(seq.seq_id for seq in group.sequences)

    @rule(seconds=st.sampled_from([0.01, 1.0, 7.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        late = {
            seniority
            for seniority, group in self.groups.items()
            if group.request.timeout_s and self.now >= group.arrival_time + group.request.timeout_s
        }
        expired = self.scheduler.expire(self.now)
        assert {group.seniority for group in expired} == late
        for group in expired:
            self.end(group, FinishReason.TIMEOUT)

    # Beams: whoever searches chooses their tokens

    def ready(self) -> list[SequenceGroup]:
        return [
            group
            for group in self.groups.values()
            if group.num_seqs_max
            and all(
                seq.seq_id in self.offers
                and seq.status is not SequenceStatus.SWAPPED
                and seq.is_settled
                for seq in group.sequences
            )
        ]

    @precondition(lambda self: self.ready())
    @rule(number=picks, num_branches=st.integers(0, 3))
    def choose(self, number: int, num_branches: int) -> None:
        """Some beams fork, some die, all others get a token."""
        groups = self.ready()
        group = groups[number % len(groups)]
        parents = list(group.sequences)
        num_beams = min(num_branches, group.num_seqs_max)
        if num_beams == 0 or parents[0].num_tokens + 1 >= parents[0].num_tokens_max:
            return self.end(group, FinishReason.LENGTH)
        chosen = [parents[(number + i // 2) % len(parents)] for i in range(num_beams)]
        for seq in parents:
            if seq not in chosen:
                self.scheduler.finish(seq, FinishReason.STOP, None)
        self.offers.difference_update(seq.seq_id for seq in parents)
        beams: list[Sequence] = []
        for parent in chosen:
            beams.append(self.fork(parent) if parent in beams else parent)
        for token_id, seq in enumerate(beams):
            seq.token_ids.append(token_id)
        group.sequences[:] = beams

    def fork(self, parent: Sequence) -> Sequence:
        child = self.make_sequence(parent.group, parent.sampling)
        child.is_steered = True
        child.token_ids = list(parent.token_ids)
        if parent.row is not None:
            self.scheduler.fork(parent, child)
        return child

    # Operators

    @precondition(lambda self: len(self.scheduler.running))
    @rule(number=picks)
    def force(self, number: int) -> None:
        running = list(self.scheduler.running)
        self.scheduler.force_preempt(running[number % len(running)])

    @precondition(lambda self: self.groups)
    @rule(number=picks)
    def pin(self, number: int) -> None:
        seq = self.pick_group(number).sequences[0]
        key = CacheKey(salt=seq.group.request.cache_salt)
        if not self.blocks.unpin(key, seq.token_ids[: seq.num_prompt]):
            self.blocks.pin(key, seq.token_ids[: seq.num_prompt])

    @rule(number=picks)
    def reset(self, number: int) -> None:
        if number % 4:
            return self.did_nothing()  # rarely, or nothing would ever be found
        if number % 8 == 0:
            self.scheduler.preempt_all()
            assert not self.scheduler.running
            assert not self.scheduler.swapped
            assert self.blocks.usage().num_referenced == self.blocks.usage().num_pinned
        self.blocks.reset_prefix_cache()

    # The worker

    @precondition(lambda self: len(self.in_flight) < self.executor.depth)
    @rule(fault=st.integers(0, 9))
    def plan(self, fault: int = 9) -> None:
        self.returning.clear()
        plan = self.scheduler.plan(self.now)
        if plan is None:
            assert self.in_flight or not self.groups or self.ready(), "nobody can go on"
            return
        by_row = {
            seq.row: self.lives[seq.seq_id] for seq in self.unfinished() if seq.row is not None
        }
        workers = [by_row[work.row] for work in plan.work]
        assert len(workers) == len({life.seq.seq_id for life in workers})
        assert sum(work.num_tokens for work in plan.work) <= self.config.max_num_batched_tokens
        self.in_flight.append(
            Flight(
                {life.seq.seq_id: life.num_losses for life in workers},
                {seq_id: self.lives[seq_id].num_losses for seq_id in self.returning},
                bool(plan.swap_ins or plan.swap_outs),
            )
        )
        if fault < 2:
            self.executor.fail_steps.add(plan.step_id)
        elif fault == 2 and plan.work:
            self.executor.row_errors[plan.step_id, plan.work[0].row] = "one row only"
        self.seen["copied"] += len(plan.copies)
        self.seen["found in the cache"] += sum(opened.num_computed > 0 for opened in plan.opened)
        self.executor.submit(plan)

    @precondition(lambda self: self.in_flight)
    @rule()
    def collect(self) -> None:
        flight = self.in_flight.popleft()
        try:
            result = self.executor.collect()
        except StepFailed:
            return self.crash(flight)
        progress = self.scheduler.commit(replace(result, compute_s=0.001))
        assert {step.seq.seq_id for step in progress} == self.still(flight.workers)
        for step in progress:
            self.take(step)

    def still(self, relying: dict[int, int]) -> set[int]:
        """Those of them that have kept what they had."""
        return {i for i, losses in relying.items() if self.lives[i].num_losses == losses}

    def crash(self, flight: Flight) -> None:
        """Who computed in it is lost, or came back with it; who is swapped, or came back in a later
        step, begins anew, if it moved anything; nobody else notices."""
        expected = self.still(flight.workers | flight.returned)
        swapped = {seq.seq_id for seq in self.unfinished() if seq.status is SequenceStatus.SWAPPED}
        for later in self.in_flight:
            swapped |= self.still(later.returned)
        lost = self.scheduler.fail_step()
        dropped = swapped if flight.has_swaps else set()
        assert {seq.seq_id for seq in lost} == expected - dropped
        assert all(self.lives[i].status == "preempted" for i in dropped)
        self.seen["lost with a step"] += len(lost)
        for seq in lost:
            if not seq.is_finished:
                self.end(seq.group, FinishReason.ERROR)

    def take(self, step: Progress) -> None:
        seq = step.seq
        if seq.is_finished:  # with its group, because of another row of this step
            return
        if step.result.error is not None:
            return self.end(seq.group, FinishReason.ERROR)
        for position, scored in enumerate(step.result.scored, step.first_scored):
            assert position <= seq.num_scored, "a position is never scored"
            assert scored.token_id == seq.token_ids[position]
            seq.num_scored = max(seq.num_scored, position + 1)
        if seq.is_steered:
            if step.result.token_id is not None:
                assert step.result.token_id == checksum_rule(seq.token_ids, seq.sampling)
                self.offers.add(seq.seq_id)
        elif seq.num_tokens == seq.num_tokens_max:
            assert seq.num_to_score in (0, seq.num_scored)
            self.scheduler.finish(seq, FinishReason.LENGTH, None)
            self.retire(seq.group)

    # After every rule

    def check_all(self) -> None:
        self.scheduler.check()
        self.check_lives()
        self.check_queues()
        usage = self.blocks.usage()
        device = usage.num_free + usage.num_cached + usage.num_referenced + usage.num_limbo
        assert device == usage.num_blocks == self.executor.num_blocks
        swap = usage.num_swap_free + usage.num_swap_cached + usage.num_swap_referenced
        assert swap + usage.num_swap_limbo == self.executor.num_swap_blocks

    def check_lives(self) -> None:
        rows = []
        for life in [*self.ended, *(self.lives[seq.seq_id] for seq in self.unfinished())]:
            seq, table = life.seq, self.blocks.table(life.seq.seq_id)
            assert life.status == seq.status.value
            assert (seq.row is not None) == (life.status == "running")
            assert (table is not None) == (life.status == "running" or seq.num_kept > 0)
            assert seq.num_kept == 0 or life.status == "preempted"
            assert self.blocks.is_swapped(seq.seq_id) == (life.status == "swapped")
            assert seq.is_steered or seq.output_token_ids == life.answer[: seq.num_outputs]
            if seq.row is not None:
                rows.append(seq.row)
            if table is not None:
                assert len(table.ids) == -(-max(seq.num_planned, seq.num_kept) // BLOCK_SIZE)
        assert len(rows) == len(set(rows)) <= self.num_rows_max
        self.ended.clear()

    def check_queues(self) -> None:
        """Each group that has not ended is in the one queue that its states allow."""
        queues = (self.scheduler.waiting, self.scheduler.running, self.scheduler.swapped)
        homes = Counter(group.seniority for queue in queues for group in queue)
        assert homes == Counter(self.groups.keys())
        for group in self.groups.values():
            states = {self.lives[seq.seq_id].status for seq in group.sequences}
            assert group not in self.scheduler.waiting or states.isdisjoint({"running", "swapped"})
            assert group not in self.scheduler.running or "swapped" not in states
            assert (group in self.scheduler.swapped) == ("swapped" in states)

    @precondition(lambda self: self.groups)
    @rule(count=st.integers(1, 8), fault=st.integers(0, 9))
    def go_on(self, count: int, fault: int) -> None:
        """Some whole steps: chance alone rarely makes many in a row."""
        for _ in range(count):
            self.step()
        self.step(fault)

    def step(self, fault: int = 9) -> None:
        while self.ready():
            self.choose(1, 1)
            self.after_each_rule()
        while len(self.in_flight) < self.executor.depth:
            num_in_flight = len(self.in_flight)
            self.plan(fault)
            self.after_each_rule()
            if len(self.in_flight) == num_in_flight:
                break
        if self.in_flight:
            self.collect()
            self.after_each_rule()

    def teardown(self) -> None:
        """Whatever has happened, there is an end, and nothing is left."""
        if sys.exc_info()[0] is not None or not hasattr(self, "scheduler"):
            return
        for _ in range(DRAIN_STEPS_MAX):
            if not self.groups and not self.in_flight:
                break
            self.step()
        assert not self.groups, "no end"
        usage = self.blocks.usage()
        assert usage.num_referenced == usage.num_pinned
        assert usage.num_limbo == usage.num_swap_limbo == usage.num_swap_referenced == 0
        assert not self.scheduler.has_groups
