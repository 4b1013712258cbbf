# SPDX-License-Identifier: Apache-2.0
"""Both executors keep the port's promises; the threaded one really overlaps."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from octavo.executor.inline import InlineExecutor
from octavo.executor.threaded import ThreadedExecutor
from octavo.types.errors import StepFailed
from octavo.types.ports import Executor
from octavo.types.step import StepPlan, StepResult

Factory = Callable[["Recorder"], Executor]


class Recorder:
    """Answers every plan, remembers which thread asked, and fails where it is told to."""

    num_blocks = 7
    block_size = 8
    num_swap_blocks = 5
    num_rows = 3

    def __init__(self, failing_step: int | None = None) -> None:
        self.failing_step = failing_step
        self.steps: list[int] = []
        self.threads: set[int] = set()
        self.num_closed = 0

    def execute(self, plan: StepPlan) -> StepResult:
        self.threads.add(threading.get_ident())
        if plan.step_id == self.failing_step:
            raise StepFailed(f"step {plan.step_id}: told to fail")
        self.steps.append(plan.step_id)
        return StepResult(plan.step_id)

    def close(self) -> None:
        self.num_closed += 1


@pytest.fixture(params=["inline", "threaded"])
def make(request: pytest.FixtureRequest) -> Factory:
    return InlineExecutor if request.param == "inline" else ThreadedExecutor


def test_sizes_are_the_runners(make: Factory) -> None:
    executor = make(Recorder())
    assert (executor.num_blocks, executor.block_size, executor.num_rows) == (7, 8, 3)
    assert executor.num_swap_blocks == 5
    executor.close()


def test_results_come_in_the_order_of_the_plans(make: Factory) -> None:
    runner = Recorder()
    executor = make(runner)
    for first in range(0, 20, executor.depth):
        for step_id in range(first, first + executor.depth):
            executor.submit(StepPlan(step_id))
        for step_id in range(first, first + executor.depth):
            assert executor.collect().step_id == step_id
    assert runner.steps == list(range(20))
    executor.close()


def test_no_more_plans_than_depth(make: Factory) -> None:
    executor = make(Recorder())
    for step_id in range(executor.depth):
        executor.submit(StepPlan(step_id))
    with pytest.raises(StepFailed, match="submitted and not collected"):
        executor.submit(StepPlan(99))
    assert executor.collect().step_id == 0  # and the refused plan left no trace
    executor.close()


def test_nothing_to_collect_is_an_error_and_not_a_wait(make: Factory) -> None:
    executor = make(Recorder())
    with pytest.raises(StepFailed, match="no step was submitted"):
        executor.collect()
    executor.close()


def test_a_failure_belongs_to_its_own_step(make: Factory) -> None:
    executor = make(Recorder(failing_step=1))
    answers: list[str] = []
    for step_id in range(3):
        executor.submit(StepPlan(step_id))
        try:
            answers.append(str(executor.collect().step_id))
        except StepFailed as error:
            answers.append(str(error))
    assert answers == ["0", "step 1: told to fail", "2"]
    executor.close()


def test_close_closes_the_runner_once_and_ends_the_work(make: Factory) -> None:
    runner = Recorder()
    executor = make(runner)
    executor.close()
    executor.close()
    assert runner.num_closed == 1
    with pytest.raises(StepFailed, match="closed"):
        executor.submit(StepPlan(0))
    with pytest.raises(StepFailed, match="closed"):
        executor.collect()


class Gate(Recorder):
    """Holds every plan until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Semaphore(0)
        self.opened = threading.Semaphore(0)

    def execute(self, plan: StepPlan) -> StepResult:
        self.entered.release()
        assert self.opened.acquire(timeout=10)
        return super().execute(plan)


def test_the_caller_goes_on_while_a_step_computes() -> None:
    runner = Gate()
    executor = ThreadedExecutor(runner, depth=2)
    executor.submit(StepPlan(0))
    assert runner.entered.acquire(timeout=10)  # step 0 computes
    executor.submit(StepPlan(1))  # and the caller could plan and submit meanwhile
    runner.opened.release(2)
    assert [executor.collect().step_id for _ in range(2)] == [0, 1]
    assert runner.threads
    assert threading.get_ident() not in runner.threads
    executor.close()


def test_close_waits_for_the_step_in_progress_and_drops_the_rest() -> None:
    runner = Gate()
    executor = ThreadedExecutor(runner, depth=2)
    executor.submit(StepPlan(0))
    executor.submit(StepPlan(1))
    assert runner.entered.acquire(timeout=10)
    closing = threading.Thread(target=executor.close)
    closing.start()
    assert runner.num_closed == 0  # native memory must outlive the step that uses it
    runner.opened.release(2)
    closing.join(timeout=10)
    assert runner.num_closed == 1
    assert runner.steps[0] == 0


@pytest.mark.parametrize("depth", [-1, 0, 17, 100])
def test_a_depth_out_of_range_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match=rf"depth must be in \[1, 16\], got {depth}"):
        ThreadedExecutor(Recorder(), depth=depth)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 8])
def test_as_many_plans_as_depth_may_be_in_flight(depth: int) -> None:
    executor = ThreadedExecutor(Recorder(), depth=depth)
    for step_id in range(depth):
        executor.submit(StepPlan(step_id))
    with pytest.raises(StepFailed, match=f"{depth} steps are submitted"):
        executor.submit(StepPlan(99))
    assert [executor.collect().step_id for _ in range(depth)] == list(range(depth))
    executor.close()
