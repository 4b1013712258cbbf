# SPDX-License-Identifier: Apache-2.0
"""Waiting for an AsyncEngine in tests, never for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from octavo.engine.async_engine import AsyncEngine
from octavo.metrics.engine_metrics import EngineStats

PATIENCE_S = 10.0  # far above anything that should happen: only a hang takes this long


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(main(), PATIENCE_S)

    asyncio.run(limited())


async def eventually(engine: AsyncEngine, wanted: Callable[[EngineStats], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not wanted(engine.stats()):
        assert time.monotonic() < deadline, engine.stats()
        await asyncio.sleep(0.001)
