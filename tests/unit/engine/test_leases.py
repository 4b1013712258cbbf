# SPDX-License-Identifier: Apache-2.0
"""Clients that are gone without a word, blocks that somebody forgot, an engine that hangs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager

import pytest

from asynckit import PATIENCE_S, eventually, run
from enginekit import greedy, make_engine
from fakes import EchoExecutor, ManualClock
from octavo.engine.async_engine import AsyncEngine
from octavo.engine.engine import Engine
from octavo.types.config import RuntimeConfig

LEASE_S = 60.0


class Forgetful(AsyncEngine):
    """Loses every message that a client has gone."""

    def _leave(self, request_id: str) -> None:
        self._unregister(request_id)


@contextmanager
def running(kind: type[AsyncEngine], engine: Engine) -> Iterator[AsyncEngine]:
    running_engine = kind(engine)
    running_engine.start()
    try:
        yield running_engine
    finally:
        running_engine.shutdown(PATIENCE_S)


def slow_engine(clock: ManualClock, **options: object) -> Engine:
    """Endless answers, a millisecond per step."""

    def gate() -> None:
        time.sleep(0.001)

    executor = EchoExecutor(num_blocks=400, gate=gate, rule=lambda tokens, sampling: 65)
    options["max_model_len"] = 3000
    return make_engine(executor, clock=clock, **options)  # type: ignore[arg-type]


class TestLease:
    def test_a_client_that_left_without_a_word_costs_its_blocks_for_one_lease(self) -> None:
        async def main() -> None:
            clock = ManualClock()
            with running(Forgetful, slow_engine(clock)) as engine:
                async with aclosing(engine.generate([1], greedy(2900), "r")) as outputs:
                    await anext(outputs)
                clock.advance(LEASE_S - 1)
                await asyncio.sleep(0.02)
                assert engine.stats().num_used_blocks > 0
                clock.advance(LEASE_S / 4)
                await eventually(engine, lambda stats: stats.num_used_blocks == 0)
                stats = engine.stats()
                assert (stats.expired_leases_total, stats.finished_total["abort"]) == (1, 1)

        run(main)

    def test_whoever_waits_or_reads_keeps_it(self) -> None:
        async def main() -> None:
            clock = ManualClock()
            with running(Forgetful, slow_engine(clock)) as engine:
                async for _ in engine.generate([1], greedy(30), "r"):
                    clock.advance(LEASE_S / 2)
                assert engine.stats().expired_leases_total == 0

        run(main)

    def test_zero_turns_it_off(self) -> None:
        async def main() -> None:
            clock = ManualClock()
            runtime = RuntimeConfig(request_lease_s=0)
            with running(Forgetful, slow_engine(clock, runtime=runtime)) as engine:
                async with aclosing(engine.generate([1], greedy(2900), "r")) as outputs:
                    await anext(outputs)
                clock.advance(1e6)
                await asyncio.sleep(0.02)
                assert engine.stats().num_used_blocks > 0

        run(main)


class TestLeaks:
    def test_a_lost_decrement_is_named_and_taken_back(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = ManualClock()
        engine = make_engine(clock=clock, runtime=RuntimeConfig(request_lease_s=0))
        engine.add_request("r", "hello", greedy(4))
        while engine.has_unfinished():
            engine.step()
        engine._blocks._pool._refs[5] += 1  # nobody will ever give this one up
        engine._blocks._pool._num_references += 1
        (block_id,) = [5]
        if block_id in engine._blocks._pool._free:
            engine._blocks._pool._free.remove(block_id)
        with caplog.at_level(logging.ERROR, "octavo"):
            for seconds in (11.0, 40.0, 40.0):
                clock.advance(seconds)
                engine.upkeep()
        assert "took back block 5: 1 references, 0 owners" in caplog.text
        stats = engine.stats()
        assert stats.reclaimed_blocks_total == 1
        assert stats.audit_failures_total >= 1
        assert stats.num_used_blocks == 0
        engine.check()

    def test_blocks_of_a_sequence_that_is_gone_come_back(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = ManualClock()
        engine = make_engine(clock=clock)
        engine.add_request("r", "hello", greedy(4))
        engine.step()
        (group,) = engine._groups.values()
        engine._blocks.fork(group.sequences[0].seq_id, 4711)
        while engine.has_unfinished():
            engine.step()
        assert engine.stats().num_used_blocks == 1
        with caplog.at_level(logging.ERROR, "octavo"):
            for _ in range(7):
                clock.advance(11.0)
                engine.upkeep()
        assert "sequences that are gone: (4711,)" in caplog.text
        assert engine.stats().num_used_blocks == 0

    def test_a_healthy_engine_reports_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        clock = ManualClock()
        engine = make_engine(clock=clock)
        engine.add_request("r", "hello", greedy(30))
        with caplog.at_level(logging.INFO, "octavo"):
            while engine.has_unfinished():
                clock.advance(20.0)
                engine.step()
                engine.upkeep()
        stats = engine.stats()
        assert (stats.reclaimed_blocks_total, stats.audit_failures_total) == (0, 0)
        assert "KV blocks:" in caplog.text
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_engine_that_hangs_says_so_while_it_hangs() -> None:
    release = threading.Event()

    async def main() -> None:
        clock = ManualClock()
        executor = EchoExecutor(gate=lambda: release.wait(PATIENCE_S))
        engine = make_engine(executor, clock=clock)  # type: ignore[arg-type]
        with running(AsyncEngine, engine) as served:
            task = asyncio.create_task(anext(served.generate([1], greedy(4), "r")))
            while not executor.plans:
                await asyncio.sleep(0.001)
            assert not served.stats().is_stuck
            clock.advance(61.0)
            stats = served.stats()
            assert (stats.is_stuck, stats.no_progress_s) == (True, 61.0)
            release.set()
            await task
            await eventually(served, lambda stats: not stats.is_stuck)

    run(main)
