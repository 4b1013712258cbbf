# SPDX-License-Identifier: Apache-2.0
"""What the steps so far teach about the next one: its cost, its share of prefill, its newcomers."""

from __future__ import annotations

from octavo.scheduler.budget import CostModel, PrefillBudget
from octavo.scheduler.delay import DelayFactor
from octavo.scheduler.draft import Flight
from octavo.scheduler.queues import RankedQueue
from octavo.types.config import SchedulerConfig


class Pace:
    """The cost model and what is steered by it."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.costs = CostModel()
        self.delay = DelayFactor(
            config.scheduler_delay_factor,
            wait_max_s=config.max_queue_wait_s,
            ttft_s=_seconds(config.slo_ttft_ms),
        )
        self.budget = PrefillBudget(
            self.costs,
            low=config.min_prefill_tokens,
            high=config.max_num_batched_tokens,
            itl_s=_seconds(config.slo_itl_ms),
            ttft_s=_seconds(config.slo_ttft_ms),
        )
        self._has_target = config.slo_itl_ms is not None or config.slo_ttft_ms is not None
        self._window = config.admission_window

    def prefill_limit(self, num_context_tokens: int, waiting: RankedQueue, now: float) -> int:
        """Prompt tokens that the next step may compute, beside decodes over so much context."""
        if not self._has_target:
            return self.budget.current
        window = waiting.head(self._window)
        oldest = min((group.arrival_time for group in window), default=now)
        num_tokens = sum(seq.num_tokens for group in window for seq in group.sequences[:1])
        return self.budget.next(num_context_tokens, num_tokens, now - oldest)

    def learn(self, flight: Flight, seconds: float) -> None:
        """The step took so long in the data plane."""
        num_prefill, num_context = flight.num_prefill_tokens, flight.num_context_tokens
        num_moved = len(flight.plan.swap_ins) + len(flight.plan.swap_outs)
        if num_moved:
            predicted = self.costs.predict(num_prefill, num_context)
            self.costs.observe_swap(num_moved, seconds, predicted)
        else:
            self.costs.observe(num_prefill, num_context, seconds)
        self.budget.observe(seconds, num_prefill)
        prefill_s = min(seconds, num_prefill * self.costs.prefill_s_per_token)
        self.delay.observe(prefill_s, has_prefill=num_prefill > 0)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
