# SPDX-License-Identifier: Apache-2.0
"""GET /health: 200 while requests are taken, 503 when the engine is dead or the server drains."""

from __future__ import annotations

from fastapi import Response

from octavo.server.engine_port import ServingEngine
from octavo.server.errors import engine_unavailable
from octavo.server.lifecycle import Lifecycle


def report(engine: ServingEngine, lifecycle: Lifecycle) -> Response:
    """Reads two flags: a busy engine cannot make it late. A 200 has no body, as in vLLM."""
    if not engine.is_running:
        return engine_unavailable("the engine has stopped").response()
    if lifecycle.is_draining:
        return engine_unavailable("the server is shutting down").response()
    return Response(status_code=200)
