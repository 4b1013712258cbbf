# SPDX-License-Identifier: Apache-2.0
"""Connections of a client that notes when bytes arrive, on one asyncio loop.

The time is taken in the callback that the loop calls with new bytes, so that no queue between
tasks stands in front of it. Connections are kept and used again, as real clients do. A proxy is
never asked: it would be part of what is measured.
"""

from __future__ import annotations

import asyncio
import json
import resource
import ssl
import time
import urllib.parse
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from octavo.bench.http_reply import BadReply, ReplyReader
from octavo.types.errors import InvalidConfig

CONNECT_TIMEOUT_S = 30.0
FILES_WANTED = 65_536

OnBody = Callable[[float, bytes], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and as whom. ``path`` is a prefix of every path, without a last slash."""

    host: str
    port: int
    is_tls: bool = False
    path: str = ""
    api_key: str | None = None

    @classmethod
    def parse(cls, url: str, *, api_key: str | None = None) -> Target:
        """``http://host:8000``, as clients write it: with or without ``/v1``. Raises
        ``InvalidConfig``."""
        try:
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
        except ValueError as error:
            raise InvalidConfig(f"--base-url {url!r:.200}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidConfig(f"--base-url must be like http://127.0.0.1:8000; got {url!r:.200}")
        if not (parts.path + parts.hostname).isascii() or " " in parts.path:
            raise InvalidConfig(f"--base-url must be ASCII without spaces; got {url!r:.200}")
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise InvalidConfig("--api-key must be printable ASCII")
        is_tls = parts.scheme == "https"
        path = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if is_tls else 80), is_tls, path, api_key)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * self.is_tls}://{host}:{self.port}{self.path}"

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"{method} {self.path}{path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            "User-Agent: octavo-bench",
            "Accept: text/event-stream, application/json",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        ]
        if self.api_key is not None:
            lines.append(f"Authorization: Bearer {self.api_key}")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class _Connection(asyncio.Protocol):
    """One request at a time; ``done`` is of the reply that is being read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reply = ReplyReader()
        self.done: asyncio.Future[None] | None = None
        self.has_bytes = False
        self.is_open = True
        self._on_body: OnBody | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def begin(self, request: bytes, on_body: OnBody) -> asyncio.Future[None]:
        assert self.transport is not None
        self.reply, self.has_bytes, self._on_body = ReplyReader(), False, on_body
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.done

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        if self.done is None or self.done.done() or self._on_body is None:
            return
        self.has_bytes = True
        try:
            body = self.reply.feed(data)
            if body:
                self._on_body(now_s, body)
        except BadReply as error:
            self.done.set_exception(error)
            return
        if self.reply.is_complete:
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self.done is None or self.done.done():
            return
        try:
            self.reply.end()
        except BadReply as error:
            self.done.set_exception(error if exc is None else BadReply(f"{error}: {exc}"))
        else:
            self.done.set_result(None)

    def close(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()


class HttpClient:
    """Sends requests to one target; use it on one loop, and ``close`` it there."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._idle: list[_Connection] = []
        self._tls = ssl.create_default_context() if target.is_tls else None

    async def send(self, method: str, path: str, body: bytes, on_body: OnBody) -> ReplyReader:
        """The reply, when it is whole; ``on_body`` was given its body with times of
        ``time.perf_counter``. Raises ``BadReply``, ``OSError``, ``TimeoutError``.

        A kept connection that the server has closed in the meantime is replaced, once.
        """
        request = self.target.request(method, path, body)
        connection = self._take_idle()
        if connection is not None:
            try:
                return await self._exchange(connection, request, on_body)
            except BadReply:
                if connection.has_bytes:
                    raise
        return await self._exchange(await self._connect(), request, on_body)

    async def fetch(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Status and JSON document, None if it is none. Raises as ``send`` does."""
        parts: list[bytes] = []
        data = b"" if body is None else json.dumps(body).encode()
        reply = await self.send(method, path, data, lambda _, part: parts.append(part))
        try:
            return reply.status, json.loads(b"".join(parts))
        except (ValueError, RecursionError):
            return reply.status, None

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        target = self.target
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await loop.create_connection(
                _Connection, target.host, target.port, ssl=self._tls
            )
        return connection

    async def _exchange(
        self, connection: _Connection, request: bytes, on_body: OnBody
    ) -> ReplyReader:
        is_kept = False
        try:
            await connection.begin(request, on_body)
            is_kept = connection.is_open and connection.reply.keeps_alive
            return connection.reply
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                connection.close()


def allow_many_connections() -> None:
    """Each takes a file descriptor, and many systems give a process only 1024 unless it asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
