# SPDX-License-Identifier: Apache-2.0
"""How late the event loop is: what makes every stream, and every health check, wait."""

from __future__ import annotations

import asyncio

PERIOD_S = 0.05
WINDOW_S = 15.0  # the usual interval of a scraper, so that it misses no peak


class LoopLag:
    """A timer that measures how late it is called. Event loop only, but ``seconds``.

    The timer's own resolution, a millisecond, is part of what it measures.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._window_ends = 0.0
        self._largest = self._largest_before = 0.0

    @property
    def seconds(self) -> float:
        """The largest delay of the last 15 to 30 seconds."""
        return max(self._largest, self._largest_before)

    def start(self) -> None:
        """Measure the running loop from now on, until it is closed. Idempotent, and cheap."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            self._largest = self._largest_before = 0.0
            self._window_ends = loop.time() + WINDOW_S
            self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + PERIOD_S
        loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        if loop is not self._loop:  # the server has moved to another one
            return
        now = loop.time()
        if now >= self._window_ends:
            self._largest_before, self._largest = self._largest, 0.0
            self._window_ends = now + WINDOW_S
        self._largest = max(self._largest, now - due)
        self._schedule(loop)
