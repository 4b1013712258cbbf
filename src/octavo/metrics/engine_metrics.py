# SPDX-License-Identifier: Apache-2.0
"""What the engine counts, and the frozen picture of it that others may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.metrics.histogram import Histogram, HistogramSnapshot
from octavo.types.outputs import FinishReason
from octavo.types.sequence import SequenceGroup

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The engine at one moment. ``*_total`` and histograms count from its start; times in seconds.

    Queue lengths count requests. Blocks: free + limbo + used = ``num_blocks``; ``kv_usage`` is the
    share of them, in [0, 1], that is not free.
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

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - self.num_free_blocks - self.num_limbo_blocks

    @property
    def kv_usage(self) -> float:
        return 1.0 - self.num_free_blocks / self.num_blocks


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

    def step(self, num_tokens: int, duration_s: float) -> None:
        self.steps_total += 1
        self.computed_tokens_total += num_tokens
        self.step_s.observe(duration_s)

    def token(self, group: SequenceGroup, now: float) -> None:
        """One token was sampled; stamps the group's token times. The first completes its prompt."""
        self.generation_tokens_total += 1
        if group.last_token_time is not None:
            self.itl_s.observe(now - group.last_token_time)
        else:
            group.first_token_time = now
            self.prompt_tokens_total += len(group.request.prompt_token_ids)
            self.ttft_s.observe(now - group.arrival_time)
            if group.first_scheduled_time is not None:
                self.queue_s.observe(group.first_scheduled_time - group.arrival_time)
        group.last_token_time = now

    def finished(self, group: SequenceGroup, reason: FinishReason, now: float) -> None:
        """A request ended; stamps the group."""
        group.finished_time = now
        self.finished_total[reason.value] += 1
        self.e2e_s.observe(now - group.arrival_time)

    def frozen_finished(self) -> Mapping[str, int]:
        return MappingProxyType(dict(self.finished_total))
