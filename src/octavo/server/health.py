# SPDX-License-Identifier: Apache-2.0
"""GET /health and /health/live: may requests come, and should the process be restarted?"""

from __future__ import annotations

from fastapi import Response

from octavo.server.engine_port import ServingEngine
from octavo.server.errors import engine_unavailable
from octavo.server.lifecycle import Lifecycle


def report(engine: ServingEngine, lifecycle: Lifecycle) -> Response:
    """GET /health: 503 when the engine is dead or the server drains.

    Reads two flags: a busy engine cannot make it late. A 200 has no body, as in vLLM.
    """
    if lifecycle.is_draining and engine.is_running:
        return engine_unavailable("the server is shutting down").response()
    return _dead(engine) or Response(status_code=200)


def live(engine: ServingEngine) -> Response:
    """GET /health/live: 503 when waiting cannot help: the engine is dead, or has had work and made
    no progress for longer than ``watchdog_s``. A server that drains is alive.
    """
    dead = _dead(engine)
    if dead is not None:
        return dead
    stats = engine.stats()
    if stats.is_stuck:
        message = f"the engine has made no progress for {stats.no_progress_s:.0f} seconds"
        return engine_unavailable(message).response()
    return Response(status_code=200)


def _dead(engine: ServingEngine) -> Response | None:
    if engine.is_running:
        return None
    return engine_unavailable("the engine has stopped").response()
