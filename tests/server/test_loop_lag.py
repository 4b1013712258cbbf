# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import time

import pytest
from serverkit import connect, make_app

from octavo.server import loop_lag
from octavo.server.loop_lag import PERIOD_S, LoopLag

BLOCKED_S = 0.2


async def block() -> None:
    """What nothing on the loop may do."""
    await asyncio.sleep(2 * PERIOD_S)
    time.sleep(BLOCKED_S)
    await asyncio.sleep(2 * PERIOD_S)


def test_a_blocked_loop_is_seen():
    lag = LoopLag()

    async def main() -> None:
        lag.start()
        await block()

    asyncio.run(main())
    assert BLOCKED_S - PERIOD_S <= lag.seconds < 60.0


def test_an_idle_loop_is_not():
    lag = LoopLag()

    async def main() -> None:
        lag.start()
        await asyncio.sleep(4 * PERIOD_S)

    measured = []
    for _ in range(20):  # the machine may be busy, but hardly each time
        asyncio.run(main())
        measured.append(lag.seconds)
        if lag.seconds < BLOCKED_S - PERIOD_S:
            break
    assert min(measured) < BLOCKED_S - PERIOD_S


def test_a_peak_is_forgotten_after_two_windows(monkeypatch):
    monkeypatch.setattr(loop_lag, "WINDOW_S", 0.1)
    lag = LoopLag()

    async def main() -> None:
        lag.start()
        await block()
        assert lag.seconds >= BLOCKED_S - PERIOD_S
        for _ in range(100):
            await asyncio.sleep(PERIOD_S)
            if lag.seconds < BLOCKED_S - PERIOD_S:
                return
        raise AssertionError("the peak is still there")

    asyncio.run(main())


def test_a_server_that_moves_to_another_loop_measures_that():
    lag = LoopLag()

    async def main() -> None:
        lag.start()
        lag.start()
        await block()

    for _ in range(2):
        asyncio.run(main())
        assert lag.seconds >= BLOCKED_S - PERIOD_S


@pytest.mark.anyio
async def test_the_gauge_is_in_the_metrics():
    async with connect(make_app()) as client:
        await client.get("/health")
        await block()
        text = (await client.get("/metrics")).text
    (line,) = [one for one in text.splitlines() if one.startswith("octavo:event_loop_lag_seconds")]
    assert float(line.split()[-1]) >= BLOCKED_S - PERIOD_S
    assert 'octavo:http_responses_total{status="200"} 1.0' in text
