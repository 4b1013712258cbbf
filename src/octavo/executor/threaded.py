# SPDX-License-Identifier: Apache-2.0
"""Runs plans on a thread of its own, so that the next step is planned while this one computes."""

from __future__ import annotations

import queue
import threading

from octavo.executor.runner import Runner
from octavo.types.errors import StepFailed
from octavo.types.step import StepPlan, StepResult

DEPTH_MAX = 16

_STOP = None  # what close() sends down instead of a plan


class ThreadedExecutor:
    """An ``Executor`` whose one thread runs plans in order; native code releases the GIL.

    Up to ``depth`` plans may be submitted and not collected. 2 keeps the thread busy: one plan
    computes while the next is made. 3 and 4 ride out a slow turn of the planner; each more plan
    makes a stop, an abort or an arrival take effect one step later. Past 4 nothing is left to
    hide: the configuration ends there, and more are of use to experiments alone.

    A plan that fails raises from its own ``collect``. After ``close`` every call raises
    ``StepFailed``.
    """

    def __init__(self, runner: Runner, *, depth: int = 2) -> None:
        if not 1 <= depth <= DEPTH_MAX:
            raise ValueError(f"depth must be in [1, {DEPTH_MAX}], got {depth}")
        self._runner = runner
        self._depth = depth
        self._num_pending = 0
        self._closed = False
        self._plans: queue.SimpleQueue[StepPlan | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[StepResult | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="octavo-executor", daemon=True)
        self._thread.start()

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
        return self._depth

    def submit(self, plan: StepPlan) -> None:
        if self._closed:
            raise StepFailed("the executor is closed")
        if self._num_pending == self._depth:
            raise StepFailed(f"{self._depth} steps are submitted and not collected")
        self._num_pending += 1
        self._plans.put(plan)

    def collect(self) -> StepResult:
        if self._closed:
            raise StepFailed("the executor is closed")
        if self._num_pending == 0:
            raise StepFailed("no step was submitted")
        answer = self._answers.get()
        self._num_pending -= 1
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """Waits for the step in progress; steps still queued are dropped."""
        if self._closed:
            return
        self._closed = True
        self._plans.put(_STOP)
        self._thread.join()
        self._runner.close()

    def _work(self) -> None:
        while True:
            plan = self._plans.get()
            if plan is _STOP or self._closed:
                return
            try:
                self._answers.put(self._runner.execute(plan))
            except BaseException as error:  # collect() raises it in the caller's thread
                self._answers.put(error)
