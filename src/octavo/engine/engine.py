# SPDX-License-Identifier: Apache-2.0
"""The engine: requests in, steps, outputs out. Synchronous and single-threaded."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from octavo.cache.block_manager import BlockManager
from octavo.engine.admission import ORDINARY, Admission, Prompt, row_sampling
from octavo.engine.beam import BeamSearch
from octavo.engine.chaos import Chaos, FailingExecutor
from octavo.engine.output_processor import OutputProcessor
from octavo.engine.setup import admission_limits, new_blocks, start_constraint
from octavo.engine.snapshot import snapshot
from octavo.engine.steering import BeamRun
from octavo.engine.trace import Event, Lifecycle, Trace
from octavo.engine.upkeep import Upkeep
from octavo.engine.watchdog import Watchdog
from octavo.grammar.compiler import GrammarCompiler
from octavo.metrics.engine_metrics import EngineMetrics, EngineStats
from octavo.scheduler.budget import CostModel
from octavo.scheduler.scheduler import Progress, Scheduler
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.config import EngineConfig
from octavo.types.errors import (
    CorruptState,
    EngineStopped,
    InvalidRequest,
    StepFailed,
)
from octavo.types.outputs import FinishReason, RequestOutput
from octavo.types.ports import Clock, Executor, Tokenizer
from octavo.types.request import Request, Standing
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence, SequenceGroup
from octavo.types.step import RowSampling, StepPlan, StepResult

logger = logging.getLogger(__name__)


class Engine:
    """Adds requests, runs steps, returns what each step gave.

    executor   runs the plans; the engine owns it and closes it
    tokenizer  encodes prompts given as text, decodes answers
    config     every limit; ``scheduler.max_model_len`` must be a number
    clock      seconds, monotonic
    seeds      draws the seed of a request that brings none
    chaos      plants faults, for tests
    window     tokens that the model sees back, where no layer sees everything

    One thread may use it; ``AsyncEngine`` is the way in from several. Invariant, proved by
    ``check``: a request is known here exactly while the scheduler has it, and an ended one holds
    nothing.
    """

    def __init__(
        self,
        executor: Executor,
        tokenizer: Tokenizer,
        config: EngineConfig,
        *,
        clock: Clock,
        seeds: Callable[[], int],
        chaos: Chaos | None = None,
        window: int | None = None,
    ) -> None:
        num_seqs = min(config.scheduler.max_num_seqs, executor.num_rows)
        config = replace(config, scheduler=replace(config.scheduler, max_num_seqs=num_seqs))
        self.config = config
        self.trace = Trace()
        self.watchdog = Watchdog(clock, config.runtime.watchdog_s)
        self._chaos = chaos
        self._executor = executor if chaos is None else FailingExecutor(executor, chaos)
        self.clock = clock
        self._seeds = seeds
        grammars = GrammarCompiler(tokenizer)
        self._blocks = new_blocks(executor, config, window, chaos)
        self._scheduler = Scheduler(self._blocks, config.scheduler, num_rows=executor.num_rows)
        self.admission = Admission(tokenizer, admission_limits(config, self._blocks), grammars)
        self._tokenizer = tokenizer
        self._outputs = OutputProcessor(tokenizer)
        self._beam_runs: dict[str, BeamRun] = {}
        self._metrics = EngineMetrics()
        self._groups: dict[str, SequenceGroup] = {}
        self._lifecycles: dict[str, Lifecycle] = {}
        self._outbox: list[RequestOutput] = []  # made between steps, by abort; given with the next
        self._flights: deque[_Flight] = deque()  # the plans in flight
        self._seq_ids = count()
        self._upkeep = Upkeep(self._blocks, self._metrics, config.runtime, clock, self.trace)
        self._is_closed = False

    @property
    def chaos(self) -> Chaos | None:
        """The faults that are planted; ``AsyncEngine`` has some of its own to draw."""
        return self._chaos

    @property
    def upkeep_interval_s(self) -> float | None:
        """How often ``upkeep`` wants to be called while there are no steps; None: never."""
        return self._upkeep.interval_s

    def upkeep(self) -> None:
        """Look for leaked blocks and log a summary of all, each when its time has come."""
        self._upkeep.run(self.live_seq_ids)

    @property
    def blocks(self) -> BlockManager:
        """For looking at, by the thread that owns the engine."""
        return self._blocks

    @property
    def costs(self) -> CostModel:
        """What a step costs, as far as it is known; for looking at, likewise."""
        return self._scheduler.pace.costs

    @property
    def groups(self) -> Mapping[str, SequenceGroup]:
        """The requests that are here, by id; for looking at, likewise."""
        return self._groups

    def live_seq_ids(self) -> set[int]:
        """Sequences that may hold blocks."""
        groups = self._groups.values()
        return {seq.seq_id for group in groups for seq in group.sequences if not seq.is_finished}

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams | BeamSearchParams,
        *,
        arrival_time: float | None = None,
        standing: Standing = ORDINARY,
    ) -> None:
        """Admit and file a request.

        Raises ``InvalidRequest`` (bad value, duplicate id) or ``PromptTooLong``; then nothing is
        kept.
        """
        request = self.admission.admit(prompt, params, request_id=request_id, standing=standing)
        self.add(request, arrival_time=arrival_time)

    def add(self, request: Request, *, arrival_time: float | None = None) -> None:
        """File a request that ``self.admission`` has admitted, perhaps on another thread.

        A beam search gives one output, at its end: the answers by score.
        """
        self._check_can_take(request)
        if request.beam is not None:
            self._add_beam_search(request, request.beam, arrival_time)
            return
        group = self._new_group(request, arrival_time)
        self._outputs.add(group)
        self._file(group)

    def _add_beam_search(
        self, request: Request, params: BeamSearchParams, arrival_time: float | None
    ) -> None:
        group = self._new_group(request, arrival_time, num_sequences=1)
        ends = request.stop_token_ids | {request.eos_token_id}
        if params.end_token_ids is not None:
            ends = frozenset(params.end_token_ids)
        search = BeamSearch(
            params,
            max_tokens=request.max_tokens,
            end_ids=frozenset(token_id for token_id in ends if token_id is not None),
        )
        (beam,) = group.sequences
        beam.is_steered = True
        num_offers = min(search.num_offers, self._tokenizer.vocab_size)
        beam.sampling = RowSampling(num_logprobs=num_offers)
        group.num_seqs_max = params.beam_width
        self._file(group)
        self._beam_runs[request.request_id] = BeamRun(
            group, search, self._scheduler, self._seq_ids.__next__
        )

    def abort(self, request_id: str) -> None:
        """End a request now; the next outputs have its last, with ``finish_reason`` "abort".

        An id that is not here (ended, or never was) is no error.
        """
        group = self._groups.get(request_id)
        if group is not None:
            self._end(group, FinishReason.ABORT, None)

    def expire_lease(self, request_id: str) -> None:
        """``abort`` for a request that nobody reads; counted and logged."""
        group = self._groups.get(request_id)
        if group is not None:
            self._metrics.expired_leases_total += 1
            logger.warning("request %s has no reader any more; it is aborted", request_id)
            limit_s = self.config.runtime.request_lease_s
            message = f"nobody took an output for {limit_s:g} seconds (request_lease_s)"
            self._end(group, FinishReason.ABORT, message)

    def has_unfinished(self) -> bool:
        """Is there any reason to call ``step``: a request, a step in flight, an output not yet
        given?
        """
        return bool(self._groups) or self._scheduler.num_inflight > 0 or bool(self._outbox)

    def step(self, before_commit: Callable[[], None] | None = None) -> list[RequestOutput]:
        """Keep the executor busy and take in the oldest result; returns what is new to callers.

        ``before_commit`` runs between the two, so that what was aborted during the step is not
        answered: it may call ``add`` and ``abort``. Cost besides the executor's: a few microseconds
        for each running sequence. A step that fails ends its own sequences with ``error``.
        """
        self._expire()
        self._steer()
        self._fill_pipeline()
        if self._flights:
            failure: StepFailed | None = None
            result: StepResult | None = None
            collect_time = self.clock()
            try:
                result = self._executor.collect()
            except StepFailed as error:
                failure = error
            self._metrics.waited_s_total += self.clock() - collect_time
            if before_commit is not None:
                before_commit()
            if result is not None:
                self._commit(result)
            else:
                self._fail_step(str(failure))
        elif self._groups and not self._outbox:
            raise CorruptState(f"{len(self._groups)} requests are here and none can be planned")
        self.watchdog.has_work(bool(self._groups))
        return self.take_outputs()

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forget everything cached, pins included; with ``preempt_running``, after every request
        inside has given up what was computed for it, which changes no answer. O(blocks).

        Whether all of its memory is back: what requests hold is not, nor what a step in flight may
        still touch.
        """
        if preempt_running:
            self._scheduler.preempt_all()
        return self._blocks.reset_prefix_cache()

    def take_outputs(self) -> list[RequestOutput]:
        """Outputs that are ready without a step; ``step`` returns these too."""
        outputs, self._outbox = self._outbox, []
        return outputs

    def stats(self) -> EngineStats:
        """A frozen picture of now; any thread may read it."""
        return snapshot(
            self._metrics,
            self._scheduler,
            self._blocks,
            self.watchdog,
            grammars=self.admission.grammars.stats,
            now=self.clock(),
            pipeline_depth=self._executor.depth,
        )

    def close(self) -> None:
        """Drop every request without an answer and close the executor. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        for group in list(self._groups.values()):
            self._end(group, FinishReason.ABORT, None)
        self._outbox.clear()
        self._executor.close()

    def check(self) -> None:
        """Raise ``CorruptState`` unless every account balances. O(everything): tests, idle time."""
        self._scheduler.check()
        queued = {group.request_id for group in self._scheduler.waiting}
        queued |= {group.request_id for group in self._scheduler.running}
        queued |= {group.request_id for group in self._scheduler.swapped}
        if queued != self._groups.keys():
            raise CorruptState(f"queued requests {sorted(queued)}, known {sorted(self._groups)}")
        sampled = [g for name, g in self._groups.items() if name not in self._beam_runs]
        num_sequences = sum(len(group.sequences) for group in sampled)
        if len(self._outputs) != num_sequences:
            raise CorruptState(f"{len(self._outputs)} texts are kept for {num_sequences} sequences")

    def _check_can_take(self, request: Request) -> None:
        if self._is_closed:
            raise EngineStopped("the engine has shut down")
        if request.request_id in self._groups:
            raise InvalidRequest(f"request id {request.request_id!r} is in use", param="request_id")

    def _file(self, group: SequenceGroup) -> None:
        request = group.request
        self._groups[request.request_id] = group
        lifecycle = self._lifecycles[request.request_id] = Lifecycle(group, self.trace, self.clock)
        group.observer = lifecycle.moved
        self._scheduler.add(group)
        self._metrics.accepted_total += 1
        self.watchdog.has_work(True)

    def _new_group(
        self, request: Request, arrival_time: float | None, num_sequences: int | None = None
    ) -> SequenceGroup:
        """All samples share one seed; their index keeps their draws apart."""
        first_id = next(self._seq_ids)
        group = SequenceGroup(
            request,
            arrival_time=self.clock() if arrival_time is None else arrival_time,
            seniority=first_id,
        )
        seed = self._seeds() if request.params.seed is None else request.params.seed
        for sample_idx in range(num_sequences or request.num_samples):
            seq_id = first_id if sample_idx == 0 else next(self._seq_ids)
            sampling = row_sampling(request, seed=seed, sample_idx=sample_idx)
            seq = Sequence(seq_id, group, sampling)
            seq.constraint = start_constraint(request)
            group.sequences.append(seq)
        return group

    def _expire(self) -> None:
        """End what has run out of time, and what chaos picks."""
        for group in self._scheduler.expire(self.clock()):
            self._end(group, FinishReason.TIMEOUT, None)
        if self._chaos is not None:
            victim = self._chaos.victim([*self._groups], self._chaos.rates.abort)
            if victim is not None:
                self.abort(victim)

    def _fill_pipeline(self) -> None:
        while self._scheduler.num_inflight < self._executor.depth:
            if self._chaos is not None:
                running = [group for group in self._scheduler.running if _has_row(group)]
                victim = self._chaos.victim(running, self._chaos.rates.preempt)
                if victim is not None:
                    self._scheduler.force_preempt(victim)
            start = self.clock()
            plan = self._scheduler.plan(start)
            if plan is None:
                return
            submit_time = self.clock()
            self._metrics.plan_s.observe(submit_time - start)
            self._flights.append(_Flight(plan, submit_time))
            self._executor.submit(plan)

    def _commit(self, result: StepResult) -> None:
        now = self.clock()
        progresses = self._scheduler.commit(result)
        self._land(now, result.compute_s, sum(progress.num_tokens for progress in progresses))
        if progresses:  # transfers alone are none: an engine may swap for ever
            self.watchdog.progressed()
        self._advance(progresses, now)
        self._steer()
        self._metrics.commit_s.observe(self.clock() - now)

    def _land(self, now: float, compute_s: float, num_tokens: int) -> None:
        """The oldest plan in flight has ended well or, with no tokens, badly."""
        flight = self._flights.popleft()
        plan, duration = flight.plan, now - flight.submit_time
        self._metrics.step(num_tokens, duration, compute_s)
        self._metrics.moves(plan)
        args = (
            ("tokens", plan.num_tokens),
            ("rows", len(plan.work)),
            ("copies", len(plan.copies)),
            ("swap_ins", len(plan.swap_ins)),
            ("swap_outs", len(plan.swap_outs)),
        )
        event = Event(f"step {plan.step_id}", "step", flight.submit_time, duration, 0, args)
        self.trace.record(event)

    def _advance(self, progresses: list[Progress], now: float) -> None:
        """Carry every sequence on, then show each group once what it has, or its end.

        Errors are dealt with last: they end the whole group, whose other samples have by then got
        what the same step gave them.
        """
        news: dict[SequenceGroup, FinishReason | None] = {}
        errors: dict[SequenceGroup, str] = {}
        num_tokens: dict[SequenceGroup, int] = {}
        for progress in progresses:
            seq, group, result = progress.seq, progress.seq.group, progress.result
            if result.error is not None:
                errors.setdefault(group, result.error)
                continue
            if seq.is_steered:
                self._beam_runs[group.request_id].take(progress)
                continue
            if result.token_id is not None:
                num_tokens[group] = num_tokens.get(group, 0) + 1
                news.setdefault(group, None)
            try:
                verdict = self._outputs.accept(progress)
            except Exception as error:  # a tokenizer's failure must not reach other requests
                errors.setdefault(group, f"cannot decode the answer: {error}")
                continue
            if verdict is not None:
                self._scheduler.finish(seq, verdict.reason, verdict.stop_reason)
                news[group] = verdict.reason
        for group, count_ in num_tokens.items():
            self._stamp(group, count_, now)
        for group, message in errors.items():
            news.pop(group, None)
            self._end(group, FinishReason.ERROR, message)
        for group, reason in news.items():
            if group.is_finished:
                self._retire(group, reason or FinishReason.STOP, now, None)
            else:
                self._give(group, None)

    def _steer(self) -> None:
        """Take every beam search on that has what it waits for."""
        for run in [run for run in self._beam_runs.values() if run.is_ready]:
            now = self.clock()
            num_beams = run.decide()
            self._stamp(run.group, max(1, num_beams), now)
            if num_beams == 0:
                self._retire(run.group, FinishReason.STOP, now, None)

    def _stamp(self, group: SequenceGroup, num_tokens: int, now: float) -> None:
        is_first = group.first_token_time is None
        self._metrics.tokens(group, num_tokens, now)
        if is_first:
            self._lifecycles[group.request_id].update(now)

    def _fail_step(self, message: str) -> None:
        self._land(self.clock(), 0.0, 0)
        self._metrics.failed_steps_total += 1
        for seq in self._scheduler.fail_step():
            if not seq.is_finished:
                self._end(seq.group, FinishReason.ERROR, message)

    def _end(self, group: SequenceGroup, reason: FinishReason, error: str | None) -> None:
        """End all that is left of a request, from outside its own tokens."""
        for seq in group.sequences:
            if not seq.is_finished:
                self._scheduler.finish(seq, reason, None)
        self._retire(group, reason, self.clock(), error)

    def _retire(
        self, group: SequenceGroup, reason: FinishReason, now: float, error: str | None
    ) -> None:
        """Give the last output of a group, and forget it once all of its sequences have ended."""
        if group.is_finished:
            del self._groups[group.request_id]
            self.watchdog.progressed()
            lifecycle = self._lifecycles.pop(group.request_id)
            lifecycle.update(now)
            group.timeline = lifecycle.timeline()
            self._metrics.finished(group, reason, now)
        run = self._beam_runs.pop(group.request_id, None)
        if run is not None:
            self._outbox.append(run.output(self._tokenizer, reason, error))
        else:
            self._give(group, error)

    def _give(self, group: SequenceGroup, error: str | None) -> None:
        try:
            output = self._outputs.output(group, error)
        except Exception as failure:  # as above; without its text the rest can still be given
            self._outputs.mute(group)
            message = f"cannot decode the answer: {failure}"
            if not group.is_finished:
                self._end(group, FinishReason.ERROR, message)
                return
            output = self._outputs.output(group, error or message)
        if output is not None:
            self._outbox.append(output)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A plan in the executor's hands, and since when."""

    plan: StepPlan
    submit_time: float


def _has_row(group: SequenceGroup) -> bool:
    return any(seq.row is not None for seq in group.sequences)
