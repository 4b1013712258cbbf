# SPDX-License-Identifier: Apache-2.0
"""Runs each plan in the caller's thread, when its result is collected."""

from __future__ import annotations

from octavo.executor.runner import Runner
from octavo.types.errors import StepFailed
from octavo.types.step import StepPlan, StepResult


class InlineExecutor:
    """An ``Executor`` of depth 1: nothing overlaps, so a trace reads top to bottom.

    After ``close`` every call raises ``StepFailed``.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._plan: StepPlan | None = None
        self._closed = False

    @property
    def num_blocks(self) -> int:
        return self._runner.num_blocks

    @property
    def block_size(self) -> int:
        return self._runner.block_size

    @property
    def num_swap_blocks(self) -> int:
        return self._runner.num_swap_blocks

    @property
    def num_rows(self) -> int:
        return self._runner.num_rows

    @property
    def depth(self) -> int:
        return 1

    def submit(self, plan: StepPlan) -> None:
        self._check_open()
        if self._plan is not None:
            raise StepFailed(f"step {self._plan.step_id} was submitted and not collected")
        self._plan = plan

    def collect(self) -> StepResult:
        self._check_open()
        plan, self._plan = self._plan, None
        if plan is None:
            raise StepFailed("no step was submitted")
        return self._runner.execute(plan)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._plan = None
        self._runner.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StepFailed("the executor is closed")
