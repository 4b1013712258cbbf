# SPDX-License-Identifier: Apache-2.0
"""When to start new prompts at all: a prefill makes every running sequence wait."""

from __future__ import annotations


class DelayFactor:
    """New prompts start once the oldest of them has waited ``factor`` times the last prefill.

    So several prompts gather and the running sequences are held up once for all of them. The
    latency is that of the prefill part of a step, as the cost model tells it from the rest: time on
    the clock between two plans would contain whatever else the process was doing.

    ``auto`` takes as factor the share of the steps so far that carried a prefill, doubled: with few
    prompts each starts at once, and when every step carries one, they gather for two of them.
    """

    def __init__(
        self, factor: float | str, *, wait_max_s: float, ttft_s: float | None = None
    ) -> None:
        """Nobody waits for more than ``wait_max_s`` (0: any time), nor so long that another prefill
        like the last would miss ``ttft_s``, the target for the time to the first token.
        """
        self._is_auto = factor == "auto"
        self._factor = 0.0 if isinstance(factor, str) else float(factor)
        self._wait_max_s = wait_max_s
        self._ttft_s = ttft_s
        self.last_prefill_s = 0.0
        self._prefill_share = 0.0

    @property
    def factor(self) -> float:
        return 2.0 * self._prefill_share if self._is_auto else self._factor

    def observe(self, prefill_s: float, *, has_prefill: bool) -> None:
        """A step has ended; ``prefill_s`` of it went to prompts."""
        self._prefill_share += 0.05 * (has_prefill - self._prefill_share)
        if has_prefill:
            self.last_prefill_s = prefill_s

    def has_passed(self, oldest_wait_s: float, *, is_idle: bool) -> bool:
        """May new prompts start? An idle engine never waits, and nobody waits for ever."""
        factor = self.factor
        if is_idle or factor <= 0 or (0 < self._wait_max_s <= oldest_wait_s):
            return True
        if self._ttft_s is not None and oldest_wait_s + self.last_prefill_s >= self._ttft_s:
            return True
        return oldest_wait_s > factor * self.last_prefill_s
