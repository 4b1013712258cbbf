# SPDX-License-Identifier: Apache-2.0
"""Is the engine stuck: work to do, and nothing gets done?"""

from __future__ import annotations

from octavo.types.ports import Clock


class Watchdog:
    """The engine's thread pets it; any thread may look at it.

    ``limit_s`` 0 never barks. It must be above the longest step, which is no progress until it
    ends. Two plain attributes, each written whole, are all that the threads share.
    """

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._is_busy = False
        self._progress_time = clock()

    def progressed(self) -> None:
        """Something got done: a token, a part of a prompt, the end of a request."""
        self._progress_time = self._clock()

    def has_work(self, is_busy: bool) -> None:
        """Is there anything to do? The time counts from when there is."""
        if is_busy and not self._is_busy:
            self._progress_time = self._clock()
        self._is_busy = is_busy

    @property
    def idle_s(self) -> float:
        """Seconds without progress while there was work; 0 when there is none."""
        return max(0.0, self._clock() - self._progress_time) if self._is_busy else 0.0

    @property
    def is_stuck(self) -> bool:
        return 0.0 < self._limit_s < self.idle_s
