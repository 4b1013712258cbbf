# SPDX-License-Identifier: Apache-2.0
"""Running the prompts of one HTTP request as engine requests."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace

from octavo.engine.admission import ORDINARY, Admission, PromptDict
from octavo.server import exchange
from octavo.server.engine_port import ServingEngine
from octavo.server.errors import (
    engine_unavailable,
    internal_error,
    lease_expired,
    timed_out,
)
from octavo.server.lifecycle import Lifecycle
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.outputs import FinishReason, RequestMetrics, RequestOutput
from octavo.types.request import Request, Standing
from octavo.types.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

Outputs = AsyncGenerator[tuple[int, RequestOutput], None]


@dataclass(slots=True)
class Job:
    """The prompts of one HTTP request, each of which is an engine request of its own.

    ``id`` is what the client sees, and may choose; engine ids are unique whatever it chose.
    ``last`` holds the newest output of each prompt. ``discards_answer``: only the prompt was asked
    about, and the token that the engine must generate is not counted.
    """

    id: str
    requests: Sequence[Request]
    discards_answer: bool = False
    last: dict[int, RequestOutput] = field(default_factory=dict)

    @classmethod
    def admit(
        cls,
        id_: str,
        prompts: Sequence[PromptDict],
        params: SamplingParams | BeamSearchParams,
        admission: Admission,
        *,
        discards_answer: bool = False,
        standing: Standing = ORDINARY,
        clips_max_tokens: bool = True,
    ) -> Job:
        """All prompts or none. Raises ``InvalidRequest``. With API keys the key is the user."""
        current = exchange.current()
        if current is not None:
            standing = current.own(standing)
        nonce = secrets.token_hex(4)
        requests = [
            admission.admit(
                prompt,
                params,
                request_id=f"{id_}-{nonce}-{prompt_idx}",
                standing=standing,
                clips_max_tokens=clips_max_tokens,
            )
            for prompt_idx, prompt in enumerate(prompts)
        ]
        return cls(id_, requests, discards_answer)

    def end_within(self, seconds: float) -> None:
        """Give every request so much time at most. Raises ``ApiError`` 504 when that is none."""
        if seconds <= 0:
            raise timed_out()
        limits = [request.timeout_s for request in self.requests]
        self.requests = [
            replace(
                request,
                params=request.params.clone(
                    timeout_s=seconds if limit is None else min(limit, seconds)
                ),
            )
            for request, limit in zip(self.requests, limits, strict=True)
        ]

    @property
    def samples_per_prompt(self) -> int:
        return self.requests[0].params.n

    @property
    def num_choices(self) -> int:
        return len(self.requests) * self.samples_per_prompt

    @property
    def is_complete(self) -> bool:
        return len(self.last) == len(self.requests) and all(o.finished for o in self.last.values())

    def finish_reasons(self) -> set[str]:
        samples = (sample for output in self.last.values() for sample in output.outputs)
        return {sample.finish_reason for sample in samples if sample.finish_reason is not None}

    @property
    def num_truncated_tokens(self) -> int:
        return sum(request.num_truncated_tokens for request in self.requests)

    def timelines(self) -> list[dict[str, object]]:
        """Where the time of each prompt went, in milliseconds, in the order of the prompts."""
        return [_timeline(self.last[idx].metrics) for idx in sorted(self.last)]

    def usage(self) -> dict[str, object]:
        """Exact so far: a prompt counts once, every sample's tokens count, stop tokens included."""
        outputs = self.last.values()
        prompt = sum(len(request.prompt_token_ids) for request in self.requests)
        completion = sum(output.num_output_tokens for output in outputs)
        if self.discards_answer:
            completion = 0
        details = {"cached_tokens": sum(output.num_cached_tokens for output in outputs)}
        if self.num_truncated_tokens:  # on_overflow has cut the prompt: the answer must say so
            details["truncated_tokens"] = self.num_truncated_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": details,
        }


def _timeline(metrics: RequestMetrics | None) -> dict[str, object]:
    """``queue``, ``prefill``, ``decode``, ``swapped`` and ``stalled`` add up to ``total``."""
    if metrics is None or metrics.timeline is None:
        return {}
    parts = {name.removesuffix("_s"): spent for name, spent in asdict(metrics.timeline).items()}
    times = {**parts, "total": sum(parts.values())}
    if metrics.first_token_time is not None:
        times["time_to_first_token"] = metrics.first_token_time - metrics.arrival_time
    shown = {f"{name}_ms": round(1e3 * seconds, 3) for name, seconds in times.items()}
    return {**shown, "num_preemptions": metrics.num_preemptions}


async def run(engine: ServingEngine, lifecycle: Lifecycle, job: Job) -> Outputs:
    """(prompt index, output) of all prompts as they come, each prompt's in order.

    Whichever way this ends (done, error in one prompt, client gone), every engine request of the
    job has ended too: finished or aborted. Raises ``ApiError`` when the engine gave up on one.
    """
    current = exchange.current()
    with lifecycle.tracked([request.request_id for request in job.requests]):
        if current is not None:
            current.begin(job)
        streams = [engine.generate(request) for request in job.requests]
        async with aclosing(_merge(streams)) as merged:
            async for prompt_idx, output in merged:
                if current is not None:
                    current.count(job.last.get(prompt_idx), output)
                job.last[prompt_idx] = output
                _check(output)
                yield prompt_idx, output
        if not job.is_complete:
            raise engine_unavailable("the engine ended the request before it was complete")


def _check(output: RequestOutput) -> None:
    for sample in output.outputs:
        if sample.finish_reason == str(FinishReason.ABORT):
            if output.error is not None:
                raise lease_expired(output.error)
            raise engine_unavailable("the server aborted the request")
        if sample.finish_reason == str(FinishReason.TIMEOUT):
            raise timed_out()
        if sample.finish_reason == str(FinishReason.ERROR):
            logger.error("request %s failed: %s", output.request_id, output.error)
            raise internal_error()


async def _merge(streams: Sequence[AsyncGenerator[RequestOutput, None]]) -> Outputs:
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for output in only:
                yield 0, output
        return
    queue: asyncio.Queue[tuple[int, RequestOutput | Exception | None]] = asyncio.Queue()
    pumps = [asyncio.create_task(_pump(i, s, queue)) for i, s in enumerate(streams)]
    num_open = len(pumps)
    try:
        while num_open:
            prompt_idx, item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_open -= 1
            else:
                yield prompt_idx, item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    prompt_idx: int,
    stream: AsyncGenerator[RequestOutput, None],
    queue: asyncio.Queue[tuple[int, RequestOutput | Exception | None]],
) -> None:
    failure: Exception | None = None
    try:
        async with aclosing(stream) as outputs:
            async for output in outputs:
                queue.put_nowait((prompt_idx, output))
    except Exception as error:  # the reader raises it again, in the request's own task
        failure = error
    queue.put_nowait((prompt_idx, failure))
