# SPDX-License-Identifier: Apache-2.0
"""GET /load: how busy the engine is, for autoscalers, load balancers and ``octavo vmstat``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import pairwise

from fastapi.responses import JSONResponse

from octavo.engine.trace import Event
from octavo.metrics.engine_metrics import EngineStats
from octavo.scheduler.budget import CostModel
from octavo.server import views
from octavo.server.engine_port import ServingEngine

STEPS_LEARNT = 256  # the latest; some milliseconds of arithmetic

_COUNTERS = tuple(
    field.name
    for field in fields(EngineStats)
    if field.name.endswith("_total") and "finished" not in field.name
)


async def report(engine: ServingEngine) -> JSONResponse:
    """Asks the engine's thread, so the answer comes after the step that runs now."""
    backlog = await engine.ask(views.backlog)
    stats = engine.stats()
    return JSONResponse(_document(stats, backlog, engine.trace.events()))


def _document(
    stats: EngineStats, backlog: views.Backlog, events: Iterable[Event]
) -> dict[str, object]:
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
        "predicted_wait_s": predicted_wait_s(stats, backlog, events),
        "counters": {name: getattr(stats, name) for name in _COUNTERS},
    }


def predicted_wait_s(
    stats: EngineStats, backlog: views.Backlog, events: Iterable[Event]
) -> float | None:
    """Seconds of prefill before a request that comes now, at the pace of the latest steps.

    None when that cannot be told: too few steps so far, or requests that wait for blocks or seats,
    so that not the computing but somebody's end decides.
    """
    num_tokens = backlog["num_prefill_tokens"]
    if num_tokens == 0 and stats.num_waiting == 0:
        return 0.0
    costs = learn(events)
    if not costs.is_ready or stats.waiting_by_reason.get("capacity"):
        return None
    num_steps = -(-num_tokens // backlog["step_tokens_max"])
    return num_steps * costs.predict(0, 0) + num_tokens * costs.prefill_s_per_token


def learn(events: Iterable[Event]) -> CostModel:
    """What a step costs, fixed and per prompt token, from the steps in a trace.

    Steps wait for each other, so one has run since the end of the one before it, if that is later
    than its own start. A decode computes one token a row: what is beyond that is prefill.
    """
    steps = [event for event in events if event.category == "step"][-STEPS_LEARNT - 1 :]
    costs = CostModel()
    for before, step in pairwise(steps):
        args = dict(step.args)
        num_prefill = int(args["tokens"]) - int(args["rows"])
        costs.observe(num_prefill, 0, _end_s(step) - max(step.start_s, _end_s(before)))
    return costs


def _end_s(event: Event) -> float:
    return event.start_s + (event.duration_s or 0.0)
