# SPDX-License-Identifier: Apache-2.0
"""What the engine counts, and the frozen picture of it that others may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from octavo.metrics.histogram import Histogram, HistogramSnapshot
from octavo.metrics.request_histograms import RequestHistograms
from octavo.types.outputs import FinishReason
from octavo.types.sequence import SequenceGroup
from octavo.types.step import StepPlan

# Seconds. A step of a small model on a CPU takes 5 ms, a long prefill on a slow one minutes;
# factors of 2 to 2.5 keep the error of a quantile read from the buckets below that factor.
_LATENCY_BOUNDS_S = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
)
_TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
# Planning and commit: microseconds for a sequence, a few milliseconds for hundreds.
_STEP_TOKEN_BOUNDS = (1.0, 8.0, *(float(2**i) for i in range(4, 15)))
_CONTROL_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1)

EMPTY = HistogramSnapshot((), (0,), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The engine at one moment. ``*_total`` and histograms count from its start; times in seconds.

    Queue lengths count requests. Blocks: free + cached + limbo + used = ``num_blocks``; cached ones
    hold a prefix that nobody uses and are given up when they are needed, so ``kv_usage``, in
    [0, 1], counts them as free. Shared and pinned ones are among the used. ``num_waste_slots``: the
    unfilled parts of last blocks. ``num_logical_blocks``: entries of all block tables.
    ``num_started_prompt_tokens``: of the running and the swapped. ``waiting_by_reason`` and
    ``preemptions_by_mode`` count by name; recomputes that kept a part are in
    ``partial_preemptions_total`` too. Of a step's time, ``executed_s_total`` was spent in native
    code and ``waited_s_total`` in waiting for it.
    ``prefill_budget``: prompt tokens that the latency targets let the next step compute.
    ``grammar_s_total`` is what constrained tokens cost in the engine's thread, masks included;
    ``cut_answers_total`` were closed because their tokens ran out.
    ``num_promised_blocks``: kept back for running sequences (``admission_reserve``), not held yet.
    ``padding_tokens_total``: what padding would have added to static batches; else nothing is.
    ``step_tokens`` has the tokens of steps, ``requests`` by name what the ended ones were.
    ``is_stuck``: work and no progress for longer than ``watchdog_s``.
    """

    num_running: int
    num_waiting: int
    num_swapped: int
    oldest_waiting_s: float
    num_blocks: int
    num_free_blocks: int
    num_limbo_blocks: int
    block_size: int
    steps_total: int
    failed_steps_total: int
    computed_tokens_total: int
    prompt_tokens_total: int
    generation_tokens_total: int
    preemptions_total: int
    finished_total: Mapping[str, int]
    ttft_s: HistogramSnapshot
    itl_s: HistogramSnapshot
    e2e_s: HistogramSnapshot
    queue_s: HistogramSnapshot
    step_s: HistogramSnapshot
    step_tokens: HistogramSnapshot = EMPTY
    requests: Mapping[str, HistogramSnapshot] = field(default_factory=dict)
    plan_s: HistogramSnapshot = EMPTY
    commit_s: HistogramSnapshot = EMPTY
    executed_s_total: float = 0.0
    waited_s_total: float = 0.0
    oldest_swapped_s: float = 0.0
    waiting_by_reason: Mapping[str, int] = field(default_factory=dict)
    num_started_prompt_tokens: int = 0
    prefill_budget: int = 0
    num_inflight_steps: int = 0
    pipeline_depth: int = 1
    num_cached_blocks: int = 0
    num_shared_blocks: int = 0
    num_pinned_blocks: int = 0
    num_logical_blocks: int = 0
    num_waste_slots: int = 0
    num_promised_blocks: int = 0
    num_swap_blocks: int = 0
    num_free_swap_blocks: int = 0
    preemptions_by_mode: Mapping[str, int] = field(default_factory=dict)
    swap_out_blocks_total: int = 0
    swap_in_blocks_total: int = 0
    copied_blocks_total: int = 0
    evicted_blocks_total: int = 0
    partial_preemptions_total: int = 0
    recomputed_tokens_total: int = 0
    padding_tokens_total: int = 0
    prefix_queried_tokens_total: int = 0
    prefix_hit_tokens_total: int = 0
    reclaimed_blocks_total: int = 0
    audit_failures_total: int = 0
    expired_leases_total: int = 0
    grammars_compiled_total: int = 0
    grammars_reused_total: int = 0
    grammars_refused_total: int = 0
    grammar_compile_s_total: float = 0.0
    grammar_masks_total: int = 0
    grammar_mask_s_total: float = 0.0
    grammar_s_total: float = 0.0
    cut_answers_total: int = 0
    accepted_total: int = 0
    is_stuck: bool = False
    no_progress_s: float = 0.0

    @property
    def num_used_blocks(self) -> int:
        given = self.num_free_blocks + self.num_cached_blocks + self.num_limbo_blocks
        return self.num_blocks - given

    @property
    def kv_usage(self) -> float:
        return 1.0 - (self.num_free_blocks + self.num_cached_blocks) / self.num_blocks

    @property
    def swap_usage(self) -> float:
        """Share of swap blocks in use, in [0, 1]."""
        total = self.num_swap_blocks
        return 1.0 - self.num_free_swap_blocks / total if total else 0.0

    @property
    def sharing_ratio(self) -> float:
        """Block-table entries for each block in use: 1 without sharing, 0 when none is in use."""
        used = self.num_used_blocks
        return self.num_logical_blocks / used if used else 0.0


class EngineMetrics:
    """Counters that the engine's thread fills. Constant time each; nobody else touches them."""

    def __init__(self) -> None:
        self.steps_total = 0
        self.failed_steps_total = 0
        self.computed_tokens_total = 0
        self.prompt_tokens_total = 0
        self.generation_tokens_total = 0
        self.finished_total = {reason.value: 0 for reason in FinishReason}
        self.ttft_s = Histogram(_LATENCY_BOUNDS_S)
        self.itl_s = Histogram(_TOKEN_BOUNDS_S)
        self.e2e_s = Histogram(_LATENCY_BOUNDS_S)
        self.queue_s = Histogram(_LATENCY_BOUNDS_S)
        self.step_s = Histogram(_TOKEN_BOUNDS_S)
        self.step_tokens = Histogram(_STEP_TOKEN_BOUNDS)
        self.requests = RequestHistograms()
        self.plan_s = Histogram(_CONTROL_BOUNDS_S)
        self.commit_s = Histogram(_CONTROL_BOUNDS_S)
        self.swap_out_blocks_total = 0
        self.swap_in_blocks_total = 0
        self.copied_blocks_total = 0
        self.prefix_queried_tokens_total = 0
        self.prefix_hit_tokens_total = 0
        self.reclaimed_blocks_total = 0
        self.audit_failures_total = 0
        self.expired_leases_total = 0
        self.accepted_total = 0
        self.executed_s_total = 0.0
        self.waited_s_total = 0.0

    def step(self, num_tokens: int, duration_s: float, compute_s: float = 0.0) -> None:
        self.steps_total += 1
        self.executed_s_total += compute_s
        self.computed_tokens_total += num_tokens
        self.step_s.observe(duration_s)
        if num_tokens:
            self.step_tokens.observe(num_tokens)

    def moves(self, plan: StepPlan) -> None:
        """The blocks that a plan moves."""
        self.swap_out_blocks_total += len(plan.swap_outs)
        self.swap_in_blocks_total += len(plan.swap_ins)
        self.copied_blocks_total += len(plan.copies)

    def tokens(self, group: SequenceGroup, num_tokens: int, now: float) -> None:
        """A step sampled for a group, one token for each of its samples; stamps its token times.
        The first completes its prompt."""
        self.generation_tokens_total += num_tokens
        if group.last_token_time is not None:
            self.itl_s.observe(now - group.last_token_time)
        else:
            group.first_token_time = now
            self.prompt_tokens_total += len(group.request.prompt_token_ids)
            self.prefix_queried_tokens_total += len(group.request.prompt_token_ids)
            self.prefix_hit_tokens_total += group.num_cached_tokens
            self.ttft_s.observe(now - group.arrival_time)
            if group.first_scheduled_time is not None:
                self.queue_s.observe(group.first_scheduled_time - group.arrival_time)
        group.last_token_time = now

    def finished(self, group: SequenceGroup, reason: FinishReason, now: float) -> None:
        """A request ended; stamps the group."""
        group.finished_time = now
        self.finished_total[reason.value] += 1
        self.e2e_s.observe(now - group.arrival_time)
        self.requests.ended(group)

    def frozen_finished(self) -> Mapping[str, int]:
        return MappingProxyType(dict(self.finished_total))
