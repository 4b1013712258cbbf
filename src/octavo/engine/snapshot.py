# SPDX-License-Identifier: Apache-2.0
"""The picture of the engine that others get to see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octavo.cache.block_manager import BlockManager
from octavo.engine.watchdog import Watchdog
from octavo.grammar.stats import GrammarStats
from octavo.metrics.engine_metrics import EngineMetrics, EngineStats
from octavo.scheduler.scheduler import Scheduler
from octavo.types.sequence import SequenceGroup


def snapshot(
    metrics: EngineMetrics,
    scheduler: Scheduler,
    blocks: BlockManager,
    watchdog: Watchdog,
    *,
    grammars: GrammarStats,
    now: float,
    pipeline_depth: int,
) -> EngineStats:
    """Costs some 30 us and half a microsecond per waiting request."""
    usage, counts = blocks.usage(), scheduler.preemptions
    return EngineStats(
        num_running=len(scheduler.running),
        num_waiting=len(scheduler.waiting),
        num_swapped=len(scheduler.swapped),
        oldest_waiting_s=_age(scheduler.waiting, now),
        oldest_swapped_s=_age(scheduler.swapped, now),
        waiting_by_reason=_reasons(scheduler),
        num_started_prompt_tokens=sum(
            len(group.request.prompt_token_ids)
            for queue in (scheduler.running, scheduler.swapped)
            for group in queue
        ),
        prefill_budget=scheduler.pace.budget.current,
        num_inflight_steps=scheduler.num_inflight,
        pipeline_depth=pipeline_depth,
        num_blocks=usage.num_blocks,
        num_free_blocks=usage.num_free,
        num_limbo_blocks=usage.num_limbo,
        num_cached_blocks=usage.num_cached,
        num_shared_blocks=usage.num_shared,
        num_pinned_blocks=usage.num_pinned,
        num_logical_blocks=usage.num_logical,
        num_waste_slots=usage.num_waste_slots,
        num_promised_blocks=scheduler.num_promised_blocks,
        num_swap_blocks=usage.num_swap_blocks,
        num_free_swap_blocks=usage.num_swap_free + usage.num_swap_cached,
        block_size=blocks.block_size,
        preemptions_total=scheduler.num_preemptions,
        preemptions_by_mode={"swap": counts.num_swaps, "recompute": counts.num_recomputes},
        evicted_blocks_total=usage.num_evicted_total,
        partial_preemptions_total=counts.num_partials,
        recomputed_tokens_total=counts.num_lost_tokens,
        padding_tokens_total=scheduler.num_padding_tokens,
        is_stuck=watchdog.is_stuck,
        no_progress_s=watchdog.idle_s,
        **_counters(metrics),
        ttft_s=metrics.ttft_s.snapshot(),
        itl_s=metrics.itl_s.snapshot(),
        e2e_s=metrics.e2e_s.snapshot(),
        queue_s=metrics.queue_s.snapshot(),
        step_s=metrics.step_s.snapshot(),
        step_tokens=metrics.step_tokens.snapshot(),
        requests=metrics.requests.snapshot(),
        plan_s=metrics.plan_s.snapshot(),
        commit_s=metrics.commit_s.snapshot(),
        executed_s_total=metrics.executed_s_total,
        waited_s_total=metrics.waited_s_total,
        finished_total=metrics.frozen_finished(),
        grammars_compiled_total=grammars.num_compiled,
        grammars_reused_total=grammars.num_reused,
        grammars_refused_total=grammars.num_refused,
        grammar_compile_s_total=grammars.compile_s,
        grammar_masks_total=grammars.num_masks,
        grammar_mask_s_total=grammars.mask_s,
        grammar_s_total=grammars.accept_s,
        cut_answers_total=grammars.num_cut,
    )


def _age(groups: Iterable[SequenceGroup], now: float) -> float:
    """Seconds since the first of them arrived."""
    return now - min((group.arrival_time for group in groups), default=now)


def _reasons(scheduler: Scheduler) -> dict[str, int]:
    """What the waiting wait for: to compute again what a preemption took, for blocks or seats
    (capacity), or for their turn (deferred)."""
    preempted = sum(group.num_preemptions > 0 for group in scheduler.waiting)
    others = len(scheduler.waiting) - preempted
    is_blocked = scheduler.blocked is not None
    return {
        "preempted": preempted,
        "capacity": others if is_blocked else 0,
        "deferred": 0 if is_blocked else others,
    }


_COUNTERS = (
    "steps_total",
    "failed_steps_total",
    "computed_tokens_total",
    "prompt_tokens_total",
    "generation_tokens_total",
    "swap_out_blocks_total",
    "swap_in_blocks_total",
    "copied_blocks_total",
    "prefix_queried_tokens_total",
    "prefix_hit_tokens_total",
    "reclaimed_blocks_total",
    "audit_failures_total",
    "expired_leases_total",
    "accepted_total",
)


def _counters(metrics: EngineMetrics) -> dict[str, Any]:
    return {name: getattr(metrics, name) for name in _COUNTERS}
