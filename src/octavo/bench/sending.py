# SPDX-License-Identifier: Apache-2.0
"""Sending samples to a server at their times, and recording the answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from octavo.bench.answers import AnswerReader, message_of
from octavo.bench.http_client import HttpClient
from octavo.bench.http_reply import BadReply
from octavo.bench.records import Record, Sample
from octavo.types.errors import OctavoError

# What a server may not know, the dearest last: fields are left out one after another until it
# takes a request. Without usage, tokens are counted by chunks.
_OPTIONAL = ("ignore_eos", "stream_options")
CHAT = "openai-chat"
ENDPOINTS = {
    "openai": "/v1/completions",
    CHAT: "/v1/chat/completions",
    "vllm": "/v1/completions",  # what vLLM's own scripts call the first
}


class NoAnswer(OctavoError):
    """The server cannot be reached or refuses the first request; the message says what it said."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests are spelled. ``extra`` is sent with each; ``without`` are fields that the server
    refuses."""

    backend: str
    endpoint: str
    model: str
    extra: Mapping[str, object] = field(default_factory=dict)
    ignore_eos: bool = False
    without: frozenset[str] = frozenset()

    def body(self, sample: Sample) -> bytes:
        if self.backend == CHAT:
            prompt: dict[str, object] = {"messages": [{"role": "user", "content": sample.prompt}]}
        else:
            prompt = {"prompt": sample.prompt}
        length = "max_completion_tokens" if "max_tokens" in self.without else "max_tokens"
        fields = {
            "model": self.model,
            **prompt,
            length: sample.num_output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignore_eos else {}),
            **self.extra,
        }
        left_out = self.without - {"max_tokens"}
        return json.dumps({k: v for k, v in fields.items() if k not in left_out}).encode()


async def ask(
    client: HttpClient, dialect: Dialect, sample: Sample, due_s: float, timeout_s: float
) -> Record:
    """Never raises for what the server or the network does: the record's error says it."""
    body = dialect.body(sample)
    record = Record(due_s, time.perf_counter(), sample.num_prompt_tokens)
    reader = AnswerReader(record)
    try:
        async with asyncio.timeout(timeout_s):
            reply = await client.send("POST", dialect.endpoint, body, reader.take)
    except TimeoutError:
        record.error, record.end_s = "no answer within the time limit", time.perf_counter()
    except (BadReply, OSError) as error:
        record.error = " ".join(str(error).split()) or type(error).__name__
        record.end_s = time.perf_counter()
    else:
        reader.close(reply.status, time.perf_counter())
    return record


async def settle(
    client: HttpClient, dialect: Dialect, sample: Sample, timeout_s: float
) -> tuple[Dialect, Record]:
    """A first request, not measured: find the fields that the server takes. Raises ``NoAnswer``."""
    variants = [dialect]
    if "max_tokens" not in dialect.without:
        variants.append(replace(dialect, without=dialect.without | {"max_tokens"}))
    for name in _OPTIONAL if dialect.ignore_eos else _OPTIONAL[1:]:
        variants.append(replace(dialect, without=variants[0].without | {name}))
    if dialect.ignore_eos:
        variants.append(replace(dialect, without=dialect.without | set(_OPTIONAL)))
    first: Record | None = None
    for variant in variants:
        record = await ask(client, variant, sample, time.perf_counter(), timeout_s)
        if record.error is None:
            return variant, record
        first = first or record
        if not record.error.startswith(("status 400", "status 422")):
            break
    assert first is not None
    raise NoAnswer(f"the server at {client.target.url} fails the first request: {first.error}")


async def served_model(client: HttpClient) -> str:
    """The first model that the server lists. Raises ``NoAnswer``."""
    url = client.target.url
    try:
        status, document = await client.fetch("GET", "/v1/models")
    except (BadReply, OSError) as error:
        raise NoAnswer(f"no server answers at {url}: {error or type(error).__name__}") from None
    try:
        return str(document["data"][0]["id"])  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        said = message_of(json.dumps(document).encode())
        raise NoAnswer(
            f"the server at {url} lists no models (status {status}: {said}); name one with --model"
        ) from None


@dataclass(frozen=True, slots=True)
class Pace:
    """``due_s`` per sample after the start; ``max_concurrency`` None is as many as are due."""

    due_s: Sequence[float]
    max_concurrency: int | None = None
    timeout_s: float = 6 * 3600.0


async def run_load(
    client: HttpClient,
    dialect: Dialect,
    samples: Sequence[Sample],
    pace: Pace,
    on_done: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """One record per sample, in the order in which they were due.

    Requests that wait for ``max_concurrency`` are due all the same: the wait is in
    ``start_s - due_s`` and not in their latency.
    """
    gate = asyncio.Semaphore(pace.max_concurrency) if pace.max_concurrency else None
    begin_s = time.perf_counter()

    async def one(sample: Sample, due_s: float) -> Record:
        async with AsyncExitStack() as stack:
            if gate is not None:
                await stack.enter_async_context(gate)
            record = await ask(client, dialect, sample, due_s, pace.timeout_s)
        on_done(record)
        return record

    tasks: list[asyncio.Task[Record]] = []
    async with asyncio.TaskGroup() as group:
        for sample, offset_s in sorted(
            zip(samples, pace.due_s, strict=True), key=lambda pair: pair[1]
        ):
            due_s = begin_s + offset_s
            delay_s = due_s - time.perf_counter()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            tasks.append(group.create_task(one(sample, due_s)))
    return [task.result() for task in tasks]
