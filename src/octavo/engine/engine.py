# SPDX-License-Identifier: Apache-2.0
"""The engine: requests in, steps, outputs out. Synchronous and single-threaded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count

from octavo.cache.block_manager import BlockManager
from octavo.engine.admission import Admission, AdmissionLimits, Prompt, row_sampling
from octavo.engine.output_processor import OutputProcessor
from octavo.metrics.engine_metrics import EngineMetrics, EngineStats
from octavo.scheduler.scheduler import Progress, Scheduler
from octavo.types.errors import CorruptState, EngineStopped, InvalidRequest, StepFailed
from octavo.types.outputs import FinishReason, RequestOutput
from octavo.types.ports import Clock, Executor, Tokenizer
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence, SequenceGroup
from octavo.types.step import StepResult


class Engine:
    """Adds requests, runs steps, returns what each step gave.

    executor       runs the plans; the engine owns it and closes it
    tokenizer      encodes prompts given as text, decodes answers
    max_num_seqs, max_num_batched_tokens, max_model_len   limits, see ``SchedulerConfig``
    clock          seconds, monotonic
    seeds          draws the seed of a request that brings none

    One thread may use it; ``AsyncEngine`` is the way in from several. Invariant, proved by
    ``check``: a request is known here exactly while the scheduler has it, and an ended one holds
    nothing.
    """

    def __init__(
        self,
        executor: Executor,
        tokenizer: Tokenizer,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        max_model_len: int,
        clock: Clock,
        seeds: Callable[[], int],
    ) -> None:
        blocks = BlockManager(executor.num_blocks, executor.block_size)
        self.admission = Admission(tokenizer, AdmissionLimits(max_model_len, blocks.num_slots))
        self._executor = executor
        self._clock = clock
        self._seeds = seeds
        self._blocks = blocks
        self._scheduler = Scheduler(
            blocks,
            num_rows=executor.num_rows,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        self._outputs = OutputProcessor(tokenizer)
        self._metrics = EngineMetrics()
        self._groups: dict[str, SequenceGroup] = {}
        self._outbox: list[RequestOutput] = []  # made between steps, by abort; given with the next
        self._submit_times: deque[float] = deque()  # of the plans in flight
        self._seq_ids = count()
        self._is_closed = False

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        params: SamplingParams,
        *,
        arrival_time: float | None = None,
        priority: int = 0,
    ) -> None:
        """Admit and file a request.

        Raises ``InvalidRequest`` (bad value, duplicate id) or ``PromptTooLong``; then nothing is
        kept.
        """
        request = self.admission.admit(prompt, params, request_id=request_id, priority=priority)
        self.add(request, arrival_time=arrival_time)

    def add(self, request: Request, *, arrival_time: float | None = None) -> None:
        """File a request that ``self.admission`` has admitted, perhaps on another thread."""
        if self._is_closed:
            raise EngineStopped("the engine has shut down")
        if request.request_id in self._groups:
            raise InvalidRequest(f"request id {request.request_id!r} is in use", param="request_id")
        seq_id = next(self._seq_ids)
        group = SequenceGroup(
            request,
            arrival_time=self._clock() if arrival_time is None else arrival_time,
            seniority=seq_id,
        )
        seed = self._seeds() if request.params.seed is None else request.params.seed
        group.sequences.append(Sequence(seq_id, group, row_sampling(request, seed=seed)))
        self._outputs.add(group)
        self._groups[request.request_id] = group
        self._scheduler.add(group)

    def abort(self, request_id: str) -> None:
        """End a request now; the next outputs have its last, with ``finish_reason`` "abort".

        An id that is not here (ended, or never was) is no error.
        """
        group = self._groups.get(request_id)
        if group is not None:
            self._end(group, FinishReason.ABORT, None)

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
        self._fill_pipeline()
        if self._scheduler.num_inflight:
            failure: StepFailed | None = None
            result: StepResult | None = None
            try:
                result = self._executor.collect()
            except StepFailed as error:
                failure = error
            if before_commit is not None:
                before_commit()
            if result is not None:
                self._commit(result)
            else:
                self._fail_step(str(failure))
        elif self._groups:
            raise CorruptState(f"{len(self._groups)} requests are here and none can be planned")
        return self.take_outputs()

    def take_outputs(self) -> list[RequestOutput]:
        """Outputs that are ready without a step; ``step`` returns these too."""
        outputs, self._outbox = self._outbox, []
        return outputs

    def stats(self) -> EngineStats:
        """A frozen picture of now; any thread may read it."""
        metrics, scheduler, usage = self._metrics, self._scheduler, self._blocks.usage()
        oldest = scheduler.waiting.oldest
        return EngineStats(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_swapped=0,
            oldest_waiting_s=0.0 if oldest is None else self._clock() - oldest.arrival_time,
            num_blocks=usage.num_blocks,
            num_free_blocks=usage.num_free,
            num_limbo_blocks=usage.num_limbo,
            block_size=self._blocks.block_size,
            steps_total=metrics.steps_total,
            failed_steps_total=metrics.failed_steps_total,
            computed_tokens_total=metrics.computed_tokens_total,
            prompt_tokens_total=metrics.prompt_tokens_total,
            generation_tokens_total=metrics.generation_tokens_total,
            preemptions_total=scheduler.num_preemptions,
            finished_total=metrics.frozen_finished(),
            ttft_s=metrics.ttft_s.snapshot(),
            itl_s=metrics.itl_s.snapshot(),
            e2e_s=metrics.e2e_s.snapshot(),
            queue_s=metrics.queue_s.snapshot(),
            step_s=metrics.step_s.snapshot(),
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
        if queued != self._groups.keys():
            raise CorruptState(f"queued requests {sorted(queued)}, known {sorted(self._groups)}")
        num_sequences = sum(len(group.sequences) for group in self._groups.values())
        if len(self._outputs) != num_sequences:
            raise CorruptState(f"{len(self._outputs)} texts are kept for {num_sequences} sequences")

    def _fill_pipeline(self) -> None:
        while self._scheduler.num_inflight < self._executor.depth:
            now = self._clock()
            plan = self._scheduler.plan(now)
            if plan is None:
                return
            self._submit_times.append(now)
            self._executor.submit(plan)

    def _commit(self, result: StepResult) -> None:
        now = self._clock()
        progresses = self._scheduler.commit(result)
        self._metrics.step(
            sum(progress.num_tokens for progress in progresses), now - self._submit_times.popleft()
        )
        for progress in progresses:
            self._advance(progress, now)

    def _advance(self, progress: Progress, now: float) -> None:
        """Carry one sequence on: its error, its end, or what it has to show."""
        seq, group = progress.seq, progress.seq.group
        if progress.result.error is not None:
            self._end(group, FinishReason.ERROR, progress.result.error)
            return
        if progress.result.token_id is not None:
            self._metrics.token(group, now)
        try:
            verdict = self._outputs.accept(progress)
        except Exception as error:  # a tokenizer's failure must not reach other requests
            self._end(group, FinishReason.ERROR, f"cannot decode the answer: {error}")
            return
        if verdict is not None:
            self._scheduler.finish(seq, verdict.reason, verdict.stop_reason)
            self._retire(group, verdict.reason, now, None)
        elif progress.result.token_id is not None:
            self._give(group, None)

    def _fail_step(self, message: str) -> None:
        self._submit_times.popleft()
        self._metrics.failed_steps_total += 1
        for seq in self._scheduler.fail_step():
            if not seq.is_finished:
                self._end(seq.group, FinishReason.ERROR, message)

    def _end(self, group: SequenceGroup, reason: FinishReason, error: str | None) -> None:
        """End all that is left of a request, from outside its own tokens."""
        for seq in group.sequences:
            if not seq.is_finished:
                self._scheduler.finish(seq, reason, None)
        self._retire(group, reason, self._clock(), error)

    def _retire(
        self, group: SequenceGroup, reason: FinishReason, now: float, error: str | None
    ) -> None:
        """Give the last output of a group, and forget it once all of its sequences have ended."""
        if group.is_finished:
            del self._groups[group.request_id]
            self._metrics.finished(group, reason, now)
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
