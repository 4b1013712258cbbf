# SPDX-License-Identifier: Apache-2.0
"""GET /load: how busy the engine is, for autoscalers, load balancers and ``octavo vmstat``."""

from __future__ import annotations

from dataclasses import fields

from fastapi.responses import JSONResponse

from octavo.metrics.engine_metrics import EngineStats
from octavo.server import views
from octavo.server.engine_port import ServingEngine

_COUNTERS = tuple(
    field.name
    for field in fields(EngineStats)
    if field.name.endswith("_total") and "finished" not in field.name
)


async def report(engine: ServingEngine) -> JSONResponse:
    """Asks the engine's thread, so the answer comes after the step that runs now."""
    backlog = await engine.ask(views.backlog)
    stats = engine.stats()
    return JSONResponse(_document(stats, backlog))


def _document(stats: EngineStats, backlog: views.Backlog) -> dict[str, object]:
    return {
        "time_s": backlog["time_s"],
        "num_running": stats.num_running,
        "num_waiting": stats.num_waiting,
        "num_swapped": stats.num_swapped,
        "oldest_waiting_s": stats.oldest_waiting_s,
        "oldest_swapped_s": stats.oldest_swapped_s,
        "waiting_by_reason": dict(stats.waiting_by_reason),
        "is_stuck": stats.is_stuck,
        "blocks": {
            "num_blocks": stats.num_blocks,
            "num_used": stats.num_used_blocks,
            "num_cached": stats.num_cached_blocks,
            "num_free": stats.num_free_blocks,
            "num_limbo": stats.num_limbo_blocks,
            "num_swap": stats.num_swap_blocks,
            "num_swap_free": stats.num_free_swap_blocks,
            "block_size": stats.block_size,
            "kv_usage": stats.kv_usage,
        },
        "num_prefill_backlog_tokens": backlog["num_prefill_tokens"],
        "predicted_wait_s": predicted_wait_s(stats, backlog),
        "counters": {name: getattr(stats, name) for name in _COUNTERS},
    }


def predicted_wait_s(stats: EngineStats, backlog: views.Backlog) -> float | None:
    """Seconds of prefill before a request that comes now.

    None when that cannot be told: too few steps so far, or requests that wait for blocks or seats,
    so that not the computing but somebody's end decides.
    """
    if backlog["num_prefill_tokens"] == 0 and stats.num_waiting == 0:
        return 0.0
    return None if stats.waiting_by_reason.get("capacity") else backlog["seconds"]
