# SPDX-License-Identifier: Apache-2.0
"""The answer to one turn, whole or streamed, for wire formats that are made of typed events.

Both ways run the same ``Writer``: a stream sends the events that it writes, a whole answer is the
document that it has when they are over. So the two cannot say different things.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from octavo.chat.parts import Content, Part, Reasoning
from octavo.server import sse
from octavo.server.errors import ApiError, to_api_error
from octavo.server.openai import answer, generation
from octavo.server.openai.answer import Service
from octavo.server.openai.generation import Job, Outputs
from octavo.server.turn import Turn
from octavo.types.outputs import CompletionOutput, Logprob

Event = dict[str, object]  # ``type`` is its name
TokenLogprobs = tuple[int, Mapping[int, Logprob]]  # a token, and it and the likeliest in its place


@dataclass(slots=True)
class Piece:
    """What a step added to the answer. ``logprobs`` belong to the tokens of its ``Content``."""

    parts: Sequence[Part]
    logprobs: Sequence[TokenLogprobs] = ()

    def without_reasoning(self) -> Piece:
        said = [part for part in self.parts if not isinstance(part, Reasoning)]
        return Piece(said, self.logprobs)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens. ``num_cached`` are among the input, ``num_reasoning`` among the output."""

    num_input: int
    num_output: int = 0
    num_cached: int = 0
    num_reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the answer ended: ``stop``, or ``length``; ``stop_reason`` is the stop string or id."""

    finish_reason: str
    stop_reason: int | str | None
    usage: Usage


class Writer(Protocol):
    """Spells one answer. Keeps state; called in this order and never again after an end."""

    def begin(self, usage: Usage) -> Iterable[Event]: ...

    def add(self, piece: Piece) -> Iterable[Event]: ...

    def end(self, ending: Ending) -> Iterable[Event]: ...

    def fail(self, error: ApiError) -> Iterable[Event]:
        """Instead of ``end``, whenever the answer cannot be completed."""

    def whole(self) -> Mapping[str, object]:
        """The answer as one document, after ``end``."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A request that has passed everything that the server itself can check."""

    turn: Turn
    writer: Writer
    is_stream: bool

    @property
    def job(self) -> Job:
        return self.turn.job


async def create(
    request: Request, service: Service, parse: Callable[[bytes, Service, str], Reply]
) -> Response:
    """Answer a POST. ``parse`` runs in a worker thread; raises what ``errors`` can render."""
    reply = await answer.accept(request, service, parse)
    outputs = generation.run(service.engine, service.lifecycle, reply.job)
    response: Response
    if reply.is_stream:
        response = sse.EventStream(_stream(reply, outputs))
    else:
        document = await sse.until_disconnect(request.receive, lambda: _whole(reply, outputs))
        response = Response(sse.to_json(document), media_type="application/json")
    answer.tell_truncation(response, reply.job)
    return response


async def _whole(reply: Reply, outputs: Outputs) -> Mapping[str, object]:
    async with aclosing(_events(reply, outputs)) as events:
        async for _ in events:
            pass
    return reply.writer.whole()


async def _stream(reply: Reply, outputs: Outputs) -> AsyncGenerator[bytes, None]:
    """Every exception becomes an event too: the status line is long out."""
    try:
        async with aclosing(_events(reply, outputs)) as events:
            async for some in events:
                yield b"".join(map(sse.named_event, some))
    except Exception as error:
        yield b"".join(map(sse.named_event, reply.writer.fail(to_api_error(error))))


async def _events(reply: Reply, outputs: Outputs) -> AsyncGenerator[list[Event], None]:
    """The events of an answer that is completed, some at a time; raises if it is not."""
    turn, writer, account = reply.turn, reply.writer, Account()
    async with aclosing(outputs):
        yield list(writer.begin(usage_of(turn.job, account)))
        async for _, output in outputs:
            (sample,) = output.outputs
            parts = turn.parser.feed(sample.text)
            if sample.finish_reason is not None:
                parts = [*parts, *turn.parser.finish()]
            piece = account.piece(parts, sample)
            some = list(writer.add(piece if turn.shows_reasoning else piece.without_reasoning()))
            if sample.finish_reason is not None:
                usage = usage_of(turn.job, account)
                some += writer.end(Ending(sample.finish_reason, sample.stop_reason, usage))
            if some:
                yield some


@dataclass(slots=True)
class Account:
    """Which tokens belong to what: parts are cut from text, and a parser may hold text back.

    A step's tokens belong to the first part that is given after them.
    """

    num_reasoning: int = 0
    _num_held: int = 0
    _logprobs: list[TokenLogprobs] = field(default_factory=list)

    def piece(self, parts: Sequence[Part], sample: CompletionOutput) -> Piece:
        self._num_held += len(sample.token_ids)
        self._logprobs += zip(sample.token_ids, sample.logprobs or (), strict=False)
        if not parts:
            return Piece(parts)
        has_content = any(isinstance(part, Content) for part in parts)
        if isinstance(parts[0], Reasoning):
            self.num_reasoning += self._num_held
        piece = Piece(parts, self._logprobs if has_content else ())
        self._num_held, self._logprobs = 0, []
        return piece


def usage_of(job: Job, account: Account) -> Usage:
    outputs = job.last.values()
    return Usage(
        num_input=sum(len(request.prompt_token_ids) for request in job.requests),
        num_output=sum(output.num_output_tokens for output in outputs),
        num_cached=sum(output.num_cached_tokens for output in outputs),
        num_reasoning=account.num_reasoning,
    )
