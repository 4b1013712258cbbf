# SPDX-License-Identifier: Apache-2.0
"""The layer around all others that handle a request: its id, its record, its last resort."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server import errors
from octavo.server.config import HEADER_BYTES_MAX
from octavo.server.exchange import Exchange, entered
from octavo.server.server_metrics import ServerMetrics
from octavo.server.shapes import refusal

logger = logging.getLogger(__name__)

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")  # safe in a header, a log line and a JSON id

# What looks at an exchange when it is over, with the headers that began it.
Observer = Callable[[Exchange, Headers], None]


class RequestContext:
    """Gives each request its id and its exchange, and turns what nothing else caught into a 500.

    ``X-Request-Id`` is the client's own when it is harmless, and comes back in the answer.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: ServerMetrics,
        observers: Sequence[Observer] = (),
        *,
        max_header_bytes: int = HEADER_BYTES_MAX,
    ) -> None:
        self._app = app
        self._max_header_bytes = max_header_bytes
        self._metrics = metrics
        self._observers = tuple(observers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._metrics.loop_lag.start()
        headers = Headers(scope=scope)
        exchange = _begin(scope, headers)
        scope.setdefault("state", {})["request_id"] = exchange.request_id
        try:
            with entered(exchange):
                await self._answer(exchange, scope, receive, send)
        finally:
            exchange.route = _route(scope)
            self._metrics.count(exchange.status)
            for observe in self._observers:
                _observed(observe, exchange, headers)

    async def _answer(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = exchange.request_id
            await send(message)

        try:
            _check_size(scope, self._max_header_bytes)
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            answer = errors.to_api_error(error)
            if exchange.status:
                raise  # the server can only cut the connection, which is what a client must see
            await refusal(answer, scope["path"])(scope, receive, send_with_id)


def _begin(scope: Scope, headers: Headers) -> Exchange:
    asked = headers.get("x-request-id", "")
    return Exchange(
        request_id=asked if REQUEST_ID.fullmatch(asked) else uuid.uuid4().hex,
        method=scope["method"],
        path=scope["path"],
        started_s=time.monotonic(),
        started_ns=time.time_ns(),
    )


def _check_size(scope: Scope, max_bytes: int) -> None:
    """Raise ``ApiError`` 431. The parser has a limit too, but takes what one read brings whole."""
    num_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
    num_bytes += len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if num_bytes > max_bytes:
        message = f"the headers and the URL have more than {max_bytes} bytes, the limit here"
        raise errors.ApiError(431, message, code="headers_too_large")


def _route(scope: Scope) -> str:
    """As declared; a path that nobody declared is the client's text, and stays out of the log."""
    route = scope.get("route")
    if route is None:  # refused on the way to it
        routes = scope["app"].routes if "app" in scope else ()
        route = next((one for one in routes if one.matches(scope)[0] is not Match.NONE), None)
    return str(getattr(route, "path", ""))


def _observed(observe: Observer, exchange: Exchange, headers: Headers) -> None:
    """What fails in looking must not fail the request."""
    try:
        observe(exchange, headers)
    except Exception:
        logger.exception("cannot record request %s", exchange.request_id)
