# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from random import Random

import pytest

from fakes import EchoExecutor
from octavo.engine.chaos import Chaos, FailingExecutor
from octavo.types.env import ChaosRates
from octavo.types.errors import StepFailed
from octavo.types.step import RowOpen, RowSampling, RowWork, StepPlan


def test_the_same_source_gives_the_same_faults() -> None:
    def draws(seed: int) -> list[str | None]:
        chaos = Chaos(ChaosRates(), Random(seed))
        return [chaos.victim(["a", "b", "c"], 0.5) for _ in range(50)]

    assert draws(1) == draws(1) != draws(2)
    assert set(draws(1)) == {None, "a", "b", "c"}


def test_never_and_always() -> None:
    chaos = Chaos(ChaosRates(swapfail=1.0), Random(0))
    assert not any(chaos.strikes(0.0) for _ in range(100))
    assert all(chaos.swap_fails() for _ in range(100))
    assert chaos.victim([], 1.0) is None


def test_a_step_that_fails_has_run_so_the_next_plans_go_on() -> None:
    inner = EchoExecutor()
    chaos = Chaos(ChaosRates(stepfail=1.0), Random(0))
    executor = FailingExecutor(inner, chaos)
    executor.submit(
        StepPlan(1, opened=(RowOpen(0, RowSampling()),), work=(RowWork(0, 0, 1, (5,), (0,)),))
    )
    with pytest.raises(StepFailed, match="on purpose"):
        executor.collect()
    assert inner.open_rows == {0}
    assert (executor.num_blocks, executor.block_size, executor.num_rows, executor.depth) == (
        inner.num_blocks,
        inner.block_size,
        inner.num_rows,
        inner.depth,
    )
    executor.close()
    assert inner.is_closed
