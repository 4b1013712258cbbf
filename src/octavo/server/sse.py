# SPDX-License-Identifier: Apache-2.0
"""Server-sent events, and the client's right to leave.

A client that closes its connection cancels the work behind it, whether the answer is streamed or
not. In ASGI the news comes from ``receive``; so both kinds of answer run beside a task that waits
there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")

LINE_ENDS = tuple((char.encode(), f"\\u{ord(char):04x}".encode()) for char in "\x85\u2028\u2029")
DONE = b"data: [DONE]\n\n"

# A proxy that buffers or transforms would turn a stream back into a lump.
STREAM_HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


class ClientGone(Exception):
    """The client closed its connection before the answer was complete; nobody reads a reply."""


def to_json(value: Mapping[str, object]) -> bytes:
    """Compact UTF-8 JSON. NaN and infinities raise: they are no JSON, so they are our bug."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8")


def event(value: Mapping[str, object]) -> bytes:
    """Characters that only some readers take for the end of a line are escaped."""
    data = to_json(value)
    if not data.isascii():
        for raw, escaped in LINE_ENDS:
            data = data.replace(raw, escaped)
    return b"data: " + data + b"\n\n"


def named_event(value: Mapping[str, object]) -> bytes:
    """The same with a name, which is the value's own ``type``."""
    return f"event: {value['type']}\n".encode() + event(value)


async def until_disconnect(receive: Receive, work: Callable[[], Awaitable[T]]) -> T:
    """The result of ``work``, which is cancelled (and ``ClientGone`` raised) if the client leaves.

    The request's body must have been read: ``receive`` then has nothing to say but goodbye.
    """
    result: list[T] = []
    failure: list[Exception] = []
    async with anyio.create_task_group() as group:

        async def run() -> None:
            try:
                result.append(await work())
            except Exception as error:  # raised again below, out of the group's ExceptionGroup
                failure.append(error)
            group.cancel_scope.cancel()

        group.start_soon(run)
        while (await receive())["type"] != "http.disconnect":
            pass
        group.cancel_scope.cancel()
    if failure:
        raise failure[0]
    if not result:
        raise ClientGone
    return result[0]


class EventStream(Response):
    """A response of server-sent events. A client that leaves ends it quietly.

    ``events`` is closed on every way out. It has not begun before the response does, and so holds
    nothing if that never happens. It turns its errors into events itself: once the status line is
    out, nothing else can.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self.init_headers(STREAM_HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def stream() -> None:
            async with aclosing(self._events) as events:
                start = {"type": "http.response.start", "status": self.status_code}
                await send({**start, "headers": self.raw_headers})
                async for chunk in events:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        # Some servers report a lost client when we send, and not when we receive.
        with contextlib.suppress(ClientGone, OSError):
            await until_disconnect(receive, stream)
