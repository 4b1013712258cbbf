# SPDX-License-Identifier: Apache-2.0
"""How much may wait, and how long whoever comes too late should stay away."""

from __future__ import annotations

import math
from typing import NamedTuple

from octavo.metrics.engine_metrics import EngineStats
from octavo.types.config import RuntimeConfig
from octavo.types.errors import EngineOverloaded
from octavo.types.ports import Clock

WINDOW_S = 30.0  # the pace of so long counts
MARK_S = 1.0  # at most one mark in so long
MARKS_MAX = int(WINDOW_S / MARK_S)
RETRY_UNKNOWN_S = 5  # nothing has started yet that could be measured
RETRY_MAX_S = 60  # a pace changes; longer is guesswork


class _Mark(NamedTuple):
    """What had started by ``time_s``, counted from the beginning."""

    time_s: float
    num_requests: int
    num_tokens: int


class QueueBounds:
    """Refuses what would make all who wait wait ever longer.

    ``observe`` belongs to the engine's thread; ``check`` may be called by any at any time.
    """

    def __init__(self, config: RuntimeConfig, clock: Clock) -> None:
        self._reqs_max = config.max_num_queued_reqs
        self._tokens_max = config.max_num_queued_tokens
        self._clock = clock
        self._marks: tuple[_Mark, ...] = ()  # replaced, never changed: others may be reading it

    def observe(self, stats: EngineStats) -> None:
        """Look at how many have started by now. Constant time."""
        now = self._clock()
        if not self._marks or now - self._marks[-1].time_s >= MARK_S:
            mark = _Mark(now, stats.ttft_s.count, stats.prompt_tokens_total)
            self._marks = (*self._marks, mark)[-MARKS_MAX:]

    def check(self, *, num_inside: int, num_tokens_inside: int, new: int, now: EngineStats) -> None:
        """May a prompt of ``new`` tokens come in, beside the requests and their prompt tokens that
        are inside, waiting or not? Raises ``EngineOverloaded``.

        An empty queue takes a prompt of any length: waiting would not make it shorter.
        """
        num_reqs = num_inside - now.num_running - now.num_swapped
        if 0 < self._reqs_max <= num_reqs:
            message = (
                f"{num_reqs} requests wait; at most {self._reqs_max} may (max_num_queued_reqs)"
            )
            excess = num_reqs + 1 - self._reqs_max
            raise EngineOverloaded(message, retry_after_s=self._retry_s(num_requests=excess))
        num_tokens = num_tokens_inside - now.num_started_prompt_tokens
        excess = num_tokens + new - self._tokens_max
        if self._tokens_max > 0 and num_reqs > 0 and excess > 0:
            raise EngineOverloaded(
                f"{num_tokens} prompt tokens wait, and {new} more are too many; at most"
                f" {self._tokens_max} may wait (max_num_queued_tokens)",
                retry_after_s=self._retry_s(num_tokens=excess),
            )

    def _retry_s(self, *, num_requests: int = 0, num_tokens: int = 0) -> int:
        """Whole seconds until so many have started, at the pace of the last ``WINDOW_S``."""
        now = self._clock()
        marks = [mark for mark in self._marks if now - mark.time_s <= WINDOW_S]
        if len(marks) < 2:
            return RETRY_UNKNOWN_S
        first, last = marks[0], marks[-1]
        wanted, started = num_requests, last.num_requests - first.num_requests
        if num_tokens:
            wanted, started = num_tokens, last.num_tokens - first.num_tokens
        if started <= 0:
            return RETRY_MAX_S
        seconds = wanted * (last.time_s - first.time_s) / started
        return max(1, min(RETRY_MAX_S, math.ceil(seconds)))
