# SPDX-License-Identifier: Apache-2.0
"""Who has no key does not get in: everything is guarded but what is listed here.

A guard by a list of what it guards forgets the next route; this one guards it.
"""

from __future__ import annotations

from collections.abc import Iterator

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server import exchange
from octavo.server.errors import ApiError
from octavo.server.keys import Keyring

# An orchestrator's probes and a load balancer carry no key; a scraper often cannot.
PROBES = frozenset({"/health", "/health/live", "/health/ready", "/ping", "/version"})
METRICS = "/metrics"


class ApiKeys:
    """ASGI middleware. ``Authorization: Bearer KEY`` or ``x-api-key: KEY``; raises ``ApiError``
    401. The name of the key becomes the ``user`` of the current exchange.
    """

    def __init__(self, app: ASGIApp, keyring: Keyring, *, guard_metrics: bool = False) -> None:
        self._app = app
        self._keyring = keyring
        self._open_paths = PROBES if guard_metrics else PROBES | {METRICS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            self._admit(Headers(scope=scope))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # nothing here speaks it
            return
        await self._app(scope, receive, send)

    def _admit(self, headers: Headers) -> None:
        presented = list(_presented(headers))
        if not presented:
            raise _refusal("this server wants an API key: send Authorization: Bearer KEY")
        for text in presented:
            key = self._keyring.find(text)
            if key is not None:
                current = exchange.current()
                if current is not None:
                    current.user = key.name
                return
        raise _refusal("the API key is not one that this server knows")


def _presented(headers: Headers) -> Iterator[str]:
    """The keys of a request; one that several headers name is tried once for each."""
    scheme, _, text = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and text.strip():
        yield text.strip()
    if headers.get("x-api-key"):
        yield headers["x-api-key"]


def _refusal(message: str) -> ApiError:
    headers = {"www-authenticate": "Bearer"}
    return ApiError(401, message, code="invalid_api_key", headers=headers)
