# SPDX-License-Identifier: Apache-2.0
"""The data plane of one rank: it owns a decoder and turns plans into results."""

from __future__ import annotations

import time
from contextlib import suppress

from octavo.ops.decoder import Decoder, MemoryReport
from octavo.types.errors import StepFailed
from octavo.types.ports import Clock
from octavo.types.step import RowOpen, RowSampling, StepPlan, StepResult
from octavo.worker.batch import flatten, to_result


class Worker:
    """Runs plans on a decoder that has its weights and its KV cache, and ends its life.

    Not safe for two threads at once.
    """

    def __init__(self, decoder: Decoder, *, clock: Clock = time.perf_counter) -> None:
        self._decoder = decoder
        self._clock = clock
        self.num_blocks = decoder.num_blocks
        self.block_size = decoder.block_size
        self.num_rows = decoder.num_rows

    def execute(self, plan: StepPlan) -> StepResult:
        """Raises ``StepFailed`` for a plan that the decoder cannot run.

        Its rows are closed and opened all the same, so the next plan finds what it expects.
        """
        batch = flatten(plan)
        started = self._clock()
        try:
            outcomes = self._decoder.step(batch)
        except (ValueError, TypeError, RuntimeError, MemoryError) as error:
            self._settle(plan)
            raise StepFailed(f"step {plan.step_id}: {error}") from error
        return to_result(plan, outcomes, self._clock() - started)

    def _settle(self, plan: StepPlan) -> None:
        """Close and open the rows of a plan that failed.

        One that was refused has changed nothing yet. One that failed later has done this already:
        then this is refused, for the plan's sequences are lost anyway. Rows open with settings
        that nobody refuses, because what was refused may be theirs: a row that stayed closed would
        be closed by the next plan, which fails that one, and so on for ever.
        """
        opened = tuple(RowOpen(row.row, RowSampling()) for row in plan.opened)
        rows_only = StepPlan(plan.step_id, closed=plan.closed, opened=opened)
        with suppress(ValueError, TypeError, RuntimeError, MemoryError):
            self._decoder.step(flatten(rows_only))

    def memory_report(self) -> MemoryReport:
        return self._decoder.memory_report()

    def close(self) -> None:
        """Idempotent."""
        self._decoder.close()
