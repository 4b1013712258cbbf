# SPDX-License-Identifier: Apache-2.0
"""One HTTP answer, whole or streamed: the part that both endpoints share.

A stream is a small state machine: an opening per choice, deltas, exactly one delta with a
``finish_reason`` per choice, the usage if asked for, ``[DONE]``. Its only other exits are one error
event followed by ``[DONE]``, and a client that is gone.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from octavo.server import sse
from octavo.server.body import read_json_body
from octavo.server.engine_port import ServingEngine
from octavo.server.errors import engine_unavailable, model_not_found, to_api_error
from octavo.server.lifecycle import Lifecycle
from octavo.server.openai import generation
from octavo.server.openai.generation import Job, Outputs
from octavo.server.openai.sampling import UnknownFields
from octavo.server.openai.schemas import GenerationRequest
from octavo.types.errors import PromptTooLong
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.ports import Tokenizer


@dataclass(frozen=True, slots=True)
class Service:
    """What the endpoints work with. ``model_names[0]`` is the name that answers carry."""

    engine: ServingEngine
    tokenizer: Tokenizer
    lifecycle: Lifecycle
    model_names: tuple[str, ...]
    max_body_bytes: int
    token_bytes_max: int  # of the longest token
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    created: int = field(default_factory=lambda: int(time.time()))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids. Raises ``PromptTooLong`` at once for what could not fit however it is cut.

        A tokenizer takes some 300 bytes for each byte of text: bodies of the largest size, a few at
        a time, would take all of the machine's memory on the way to a refusal.
        """
        limit = self.engine.admission.limits.max_model_len
        num_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        num_tokens_min = num_bytes // self.token_bytes_max
        if num_tokens_min > limit:
            raise PromptTooLong(
                f"the prompt has more than {num_tokens_min} tokens; with one token of answer at"
                f" most {limit} fit the model's context (max_model_len)",
                param="prompt",
            )
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)


class Choices(Protocol):
    """How one endpoint spells a sample. May keep state per choice index; serves one answer."""

    kind: str
    chunk_kind: str

    def opening(self, num_choices: int) -> Sequence[dict[str, object]]: ...

    def whole(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]: ...

    def delta(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]: ...


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
    body = await read_json_body(request, service.max_body_bytes)
    if not service.engine.is_running:
        raise engine_unavailable("the engine has stopped")
    service.lifecycle.check_open()
    request_id: str = request.state.request_id
    parsed = await to_thread.run_sync(parse, body, service, request_id)
    outputs = generation.run(service.engine, service.lifecycle, parsed.job)
    is_stream = bool(parsed.asked.stream)
    head = {
        "id": parsed.job.id,
        "object": parsed.choices.chunk_kind if is_stream else parsed.choices.kind,
        "created": int(time.time()),
        "model": service.model_names[0],
    }
    if is_stream:
        return sse.EventStream(_events(parsed, outputs, head))
    answer = await sse.until_disconnect(request.receive, lambda: _whole(parsed, outputs, head))
    return Response(sse.to_json(answer), media_type="application/json")


def check_model(name: str | None, service: Service) -> None:
    """Raise ``ApiError`` 404 unless ``name`` is one that this server answers to (or not given)."""
    if name is not None and name not in service.model_names:
        raise model_not_found(name)


async def _whole(parsed: Parsed, outputs: Outputs, head: dict[str, object]) -> dict[str, object]:
    choices: list[dict[str, object]] = []
    async with aclosing(outputs):
        async for prompt_idx, output in outputs:
            for index, sample in _indexed(parsed.job, prompt_idx, output):
                choices.append(parsed.choices.whole(index, output, sample))
    choices.sort(key=lambda choice: int(str(choice["index"])))
    return {**head, "choices": choices, "usage": parsed.job.usage()}


async def _events(
    parsed: Parsed, outputs: Outputs, head: dict[str, object]
) -> AsyncGenerator[bytes, None]:
    """The answer as events. Every exception becomes an event too: the status line is long out."""
    asked, job = parsed.asked, parsed.job

    def chunk(choices: Sequence[dict[str, object]], *, with_usage: bool) -> bytes:
        usage = {"usage": job.usage() if with_usage else None} if asked.includes_usage else {}
        return sse.event({**head, "choices": choices, **usage})

    try:
        async with aclosing(outputs):
            for choice in parsed.choices.opening(job.num_choices):
                yield chunk([choice], with_usage=asked.repeats_usage)
            async for prompt_idx, output in outputs:
                for index, sample in _indexed(job, prompt_idx, output):
                    if sample.text or sample.logprobs or sample.finished():
                        delta = parsed.choices.delta(index, output, sample)
                        yield chunk([delta], with_usage=asked.repeats_usage)
        if asked.includes_usage:
            yield chunk([], with_usage=True)
    except Exception as error:
        yield sse.event(to_api_error(error).body())
    yield sse.DONE


def _indexed(
    job: Job, prompt_idx: int, output: RequestOutput
) -> Iterator[tuple[int, CompletionOutput]]:
    for sample in output.outputs:
        yield prompt_idx * job.samples_per_prompt + sample.index, sample
