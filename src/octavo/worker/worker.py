# SPDX-License-Identifier: Apache-2.0
"""The data plane of one rank: it owns a decoder and turns plans into results."""

from __future__ import annotations

import time
from contextlib import suppress

from octavo.ops.decoder import Decoder, MemoryReport, SwapTotals
from octavo.types.errors import StepFailed
from octavo.types.ports import Clock
from octavo.types.step import StepPlan, StepResult
from octavo.worker.batch import flatten, flatten_rows, to_result


class Worker:
    """Runs plans on a decoder that has its weights and its KV cache, and ends its life.

    Not safe for two threads at once.
    """

    def __init__(self, decoder: Decoder, *, clock: Clock = time.perf_counter) -> None:
        self._decoder = decoder
        self._clock = clock
        self._swap_totals = decoder.swap_totals()
        self.num_blocks = decoder.num_blocks
        self.block_size = decoder.block_size
        self.num_swap_blocks = decoder.num_swap_blocks
        self.num_rows = decoder.num_rows

    def execute(self, plan: StepPlan) -> StepResult:
        """Raises ``StepFailed`` for a plan that the decoder cannot run, or whose swaps failed.

        Its rows are closed and opened all the same, so the next plan finds what it expects; and
        every row that it opened or gave work to answers errors until it is closed, so plans that
        were in flight behind it lose these rows and no others.
        """
        batch = flatten(plan)
        started = self._clock()
        try:
            outcomes = self._decoder.step(batch)
        except (ValueError, TypeError, RuntimeError, MemoryError) as error:
            with suppress(RuntimeError):  # the decoder is closed
                self._decoder.abandon(flatten_rows(plan, self.num_rows))
            raise StepFailed(f"step {plan.step_id}: {error}") from error
        spent_s = self._clock() - started
        swap_s = self._swap_s() if plan.swap_ins or plan.swap_outs else 0.0
        return to_result(plan, outcomes, max(0.0, spent_s - swap_s), swap_s)

    def _swap_s(self) -> float:
        """Seconds of swapping since the last call."""
        before, self._swap_totals = self._swap_totals, self._decoder.swap_totals()
        return self._swap_totals.seconds - before.seconds

    def swap_totals(self) -> SwapTotals:
        return self._decoder.swap_totals()

    def memory_report(self) -> MemoryReport:
        return self._decoder.memory_report()

    def close(self) -> None:
        """Idempotent."""
        self._decoder.close()
