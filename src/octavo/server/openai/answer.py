# SPDX-License-Identifier: Apache-2.0
"""One HTTP answer, whole or streamed: what chat and completions share, and the way in of all.

A stream is a small state machine: an opening per choice, deltas, exactly one delta with a
``finish_reason`` per choice, the usage if asked for, ``[DONE]``. Its only other exits are one error
event followed by ``[DONE]``, and a client that is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from octavo.chat.interpreter import Interpreter
from octavo.server import deadlines, sse
from octavo.server.body import read_json_body
from octavo.server.engine_port import ServingEngine
from octavo.server.errors import engine_unavailable, model_not_found, to_api_error
from octavo.server.lifecycle import Lifecycle
from octavo.server.openai import generation
from octavo.server.openai.generation import Job, Outputs
from octavo.server.openai.sampling import UnknownFields
from octavo.server.openai.schemas import GenerationRequest
from octavo.server.openai.standing import tier_served
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.ports import Tokenizer


class Accepted(Protocol):
    """A request that has been admitted, however its endpoint answers."""

    @property
    def job(self) -> Job: ...


T = TypeVar("T", bound=Accepted)


@dataclass(frozen=True, slots=True)
class Service:
    """What the endpoints work with. ``model_names[0]`` is the name that answers carry."""

    engine: ServingEngine
    tokenizer: Tokenizer
    interpreter: Interpreter
    lifecycle: Lifecycle
    model_names: tuple[str, ...]
    max_body_bytes: int
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    created: int = field(default_factory=lambda: int(time.time()))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids. Raises ``PromptTooLong`` at once for what could not fit however it is cut."""
        return self.engine.admission.encode(text, add_special_tokens=add_special_tokens)


class Choices(Protocol):
    """How one endpoint spells a sample. May keep state per choice index; serves one answer."""

    kind: str
    chunk_kind: str

    def opening(self, num_choices: int) -> Sequence[dict[str, object]]: ...

    def whole(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]: ...

    def envelope(self, output: RequestOutput) -> dict[str, object]:
        """What stands beside the choices of a whole answer."""

    def deltas(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> Sequence[dict[str, object]]:
        """One chunk each; none while what came may still be the beginning of something else."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request that has passed everything that the server itself can check."""

    asked: GenerationRequest
    job: Job
    choices: Choices


async def create(
    request: Request, service: Service, parse: Callable[[bytes, Service, str], Parsed]
) -> Response:
    """Answer a POST. ``parse`` runs in a worker thread; raises what ``errors`` can render."""
    parsed = await accept(request, service, parse)
    outputs = generation.run(service.engine, service.lifecycle, parsed.job)
    is_stream = bool(parsed.asked.stream)
    head = {
        "id": parsed.job.id,
        "object": parsed.choices.chunk_kind if is_stream else parsed.choices.kind,
        "created": int(time.time()),
        "model": service.model_names[0],
        **tier_served(parsed.asked),
    }
    response: Response
    if is_stream:
        response = sse.EventStream(_events(parsed, outputs, head))
    else:
        whole = await sse.until_disconnect(request.receive, lambda: _whole(parsed, outputs, head))
        response = Response(whole, media_type="application/json")
    tell_truncation(response, parsed.job)
    return response


def tell_truncation(response: Response, job: Job) -> None:
    """In a header: of a stream without usage nothing else would tell."""
    if job.num_truncated_tokens:
        response.headers["x-truncated-tokens"] = str(job.num_truncated_tokens)


async def accept(
    request: Request, service: Service, parse: Callable[[bytes, Service, str], T]
) -> T:
    """What ``parse``, in a worker thread, makes of the body and the request's id. Its job ends at
    the deadline of the request's header."""
    started_s = time.monotonic()
    limit_s = deadlines.timeout_s(request.headers)
    body = await receive(request, service)
    request_id: str = request.state.request_id
    accepted = await to_thread.run_sync(parse, body, service, request_id)
    service.lifecycle.check_open()  # a stream can say so by its status only until it begins
    if limit_s is not None:
        accepted.job.end_within(limit_s - (time.monotonic() - started_s))
    return accepted


async def receive(request: Request, service: Service) -> bytes:
    """The body of a request that costs work. Raises ``ApiError`` if none can be taken now."""
    body = await read_json_body(request, service.max_body_bytes)
    if not service.engine.is_running:
        raise engine_unavailable("the engine has stopped")
    service.lifecycle.check_open()
    return body


def check_model(name: str | None, service: Service) -> None:
    """Raise ``ApiError`` 404 unless ``name`` is one that this server answers to (or not given)."""
    if name is not None and name not in service.model_names:
        raise model_not_found(name)


async def _whole(parsed: Parsed, outputs: Outputs, head: dict[str, object]) -> bytes:
    given: list[tuple[int, RequestOutput]] = []
    async with aclosing(outputs):
        async for item in outputs:
            given.append(item)
    # The logprobs of a long prompt take seconds, for which every stream would stand still. Not in
    # the workers that parse requests: these may all be waiting for a grammar.
    return await asyncio.to_thread(_spelt, parsed, given, head)


def _spelt(
    parsed: Parsed, given: Sequence[tuple[int, RequestOutput]], head: dict[str, object]
) -> bytes:
    choices: list[dict[str, object]] = []
    beside: dict[str, object] = {}
    for prompt_idx, output in given:
        beside |= parsed.choices.envelope(output)
        for index, sample in _indexed(parsed.job, prompt_idx, output):
            choices.append(parsed.choices.whole(index, output, sample))
    choices.sort(key=lambda choice: int(str(choice["index"])))
    beside |= _timelines(parsed)
    return sse.to_json({**head, "choices": choices, "usage": parsed.job.usage(), **beside})


def _timelines(parsed: Parsed) -> dict[str, object]:
    return {"timelines": parsed.job.timelines()} if parsed.asked.return_timeline else {}


async def _events(
    parsed: Parsed, outputs: Outputs, head: dict[str, object]
) -> AsyncGenerator[bytes, None]:
    """The answer as events. Every exception becomes an event too: the status line is long out."""
    asked, job = parsed.asked, parsed.job

    def chunk(choices: Sequence[dict[str, object]], *, with_usage: bool) -> bytes:
        usage = {"usage": job.usage() if with_usage else None} if asked.includes_usage else {}
        times = {} if choices else _timelines(parsed)
        return sse.event({**head, "choices": choices, **usage, **times})

    try:
        async with aclosing(outputs):
            for choice in parsed.choices.opening(job.num_choices):
                yield chunk([choice], with_usage=asked.repeats_usage)
            async for prompt_idx, output in outputs:
                for index, sample in _indexed(job, prompt_idx, output):
                    if sample.text or sample.logprobs or sample.finished():
                        for delta in parsed.choices.deltas(index, output, sample):
                            yield chunk([delta], with_usage=asked.repeats_usage)
        if asked.includes_usage or asked.return_timeline:
            yield chunk([], with_usage=True)
    except Exception as error:
        yield sse.event(to_api_error(error).body())
    yield sse.DONE


def _indexed(
    job: Job, prompt_idx: int, output: RequestOutput
) -> Iterator[tuple[int, CompletionOutput]]:
    for sample in output.outputs:
        yield prompt_idx * job.samples_per_prompt + sample.index, sample
