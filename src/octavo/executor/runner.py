# SPDX-License-Identifier: Apache-2.0
"""What an executor drives: a worker, or anything that answers plans as one does."""

from __future__ import annotations

from typing import Protocol

from octavo.types.step import StepPlan, StepResult


class Runner(Protocol):
    """Sizes are fixed for life. ``execute`` is only ever called by one thread at a time."""

    num_blocks: int
    block_size: int
    num_swap_blocks: int
    num_rows: int

    def execute(self, plan: StepPlan) -> StepResult:
        """Raises ``StepFailed`` when the plan cannot be run."""

    def close(self) -> None:
        """Idempotent."""
