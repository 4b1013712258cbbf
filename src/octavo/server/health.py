# SPDX-License-Identifier: Apache-2.0
"""GET /health, /health/ready and /health/live: may requests come, and should the process be
restarted? All read flags: a busy engine cannot make them late.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Response
from fastapi.responses import JSONResponse

from octavo.server.engine_port import ServingEngine
from octavo.server.errors import engine_unavailable
from octavo.server.lifecycle import Lifecycle


def report(engine: ServingEngine, lifecycle: Lifecycle) -> Response:
    """GET /health: 503 when the engine is dead or the server drains. A 200 is empty, as in vLLM."""
    if lifecycle.is_draining and engine.is_running:
        return engine_unavailable("the server is shutting down").response()
    return _dead(engine) or Response(status_code=200)


def ready(engine: ServingEngine, lifecycle: Lifecycle) -> Response:
    """GET /health/ready: 503 when a request that came now would be refused, and ``status`` says
    why. (While the model loads, ``loading.py`` answers.)
    """
    stats = engine.stats()
    load = {"num_running": stats.num_running, "num_waiting": stats.num_waiting}
    status = _status(engine, lifecycle)
    if status == "ready":
        return JSONResponse({"status": status, **load})
    return not_ready(status, WORDS[status], load)


WORDS = {
    "stopped": "the engine has stopped",
    "draining": "the server is shutting down",
    "queue_full": "as many requests wait as may",
}


def not_ready(status: str, message: str, more: Mapping[str, object]) -> JSONResponse:
    error = engine_unavailable(message)
    document = {"status": status, **more, **error.body()}
    return JSONResponse(document, status_code=error.status, headers=error.headers)


def _status(engine: ServingEngine, lifecycle: Lifecycle) -> str:
    if not engine.is_running:
        return "stopped"
    if lifecycle.is_draining:
        return "draining"
    return "queue_full" if engine.is_full else "ready"


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
