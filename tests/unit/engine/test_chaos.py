# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
from random import Random

import pytest

from enginekit import greedy, make_engine
from fakes import EchoExecutor, ManualClock
from octavo.engine.chaos import Chaos, FailingExecutor
from octavo.types.env import ChaosRates
from octavo.types.errors import CorruptState, StepFailed
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


def test_a_lost_reference_keeps_a_block_until_the_audit_names_it(caplog) -> None:
    clock = ManualClock()
    chaos = Chaos(ChaosRates(lostref=1.0), Random(0))
    engine = make_engine(clock=clock, chaos=chaos)
    engine.add_request("careless", "hello, world", greedy(4))
    while engine.has_unfinished():
        engine.step()
    assert engine.stats().num_used_blocks == 1
    with pytest.raises(CorruptState):
        engine.check()
    with caplog.at_level(logging.ERROR, "octavo"):
        for _ in range(7):
            clock.advance(11.0)
            engine.upkeep()
    assert engine.stats().num_used_blocks == 0
    engine.check()
    (line,) = [r.getMessage() for r in caplog.records if "took back" in r.getMessage()]
    assert line.startswith("took back block ")
    assert "free by 0 of careless at 4" in line  # the last step: four tokens


def test_without_chaos_nothing_is_lost() -> None:
    engine = make_engine(chaos=Chaos(ChaosRates(), Random(0)))
    engine.add_request("r", "hello", greedy(4))
    while engine.has_unfinished():
        engine.step()
    engine.check()
    assert engine.stats().num_used_blocks == 0
