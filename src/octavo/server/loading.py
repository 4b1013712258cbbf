# SPDX-License-Identifier: Apache-2.0
"""The server before there is a model: it says how far the loading is, and gives way.

An orchestrator can so tell a server that loads from one that is gone, and a client is told to come
back instead of finding nobody.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server import health
from octavo.server.errors import engine_unavailable
from octavo.server.shapes import refusal

MESSAGE = "the model is still loading"


class LoadingCancelled(Exception):
    """Nobody waits for the model any more. Raised inside the loading, where it reports."""


class Stage(NamedTuple):
    """``done`` of ``total`` bytes; a total of 0 is unknown."""

    label: str
    done: int
    total: int

    @property
    def percent(self) -> float | None:
        return round(100 * self.done / self.total, 1) if self.total else None


class LoadingApp:
    """An ASGI application that is another one once ``open`` has been called.

    ``report`` is a ``Progress`` and may be called from any thread; the rest is the event loop's.
    """

    def __init__(self) -> None:
        self.state = State({"lifecycle": None})
        self._app: ASGIApp | None = None
        self._stage = Stage("Starting", 0, 0)
        self._is_cancelled = False

    @property
    def is_open(self) -> bool:
        return self._app is not None

    def report(self, label: str, done: int, total: int) -> None:
        """Raises ``LoadingCancelled`` when the server has been told to end."""
        if self._is_cancelled:
            raise LoadingCancelled
        self._stage = Stage(label, done, total)

    def cancel(self) -> None:
        self._is_cancelled = True

    def open(self, app: Starlette) -> None:
        self.state = app.state
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope["path"])(scope, receive, send)

    def _answer(self, path: str) -> Response:
        if path == "/health/live":
            return Response(status_code=200)
        if path == "/health/ready":
            stage = {"stage": self._stage.label, "percent": self._stage.percent}
            return health.not_ready("loading", MESSAGE, stage)
        return refusal(engine_unavailable(MESSAGE), path)
