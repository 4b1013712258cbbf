# SPDX-License-Identifier: Apache-2.0
"""What is asked of a server, and what was seen of one answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Sample:
    """One request to make. ``at_s``: when, in seconds after the first, if its trace says so."""

    prompt: str
    num_prompt_tokens: int
    num_output_tokens: int
    at_s: float | None = None


@dataclass(slots=True)
class Record:
    """One request and its answer; times in seconds of one monotonic clock.

    due_s            when the arrival process wanted it sent
    start_s          when it was sent: later than due only if connections or this program were busy
    token_times_s    arrival of each chunk that brought text
    end_s            arrival of the last text or of the finish reason, or the failure
    error            why there is no whole answer, else None
    is_counted       the token numbers are the server's own, not guesses
    """

    due_s: float
    start_s: float
    num_prompt_tokens: int
    end_s: float = 0.0
    num_output_tokens: int = 0
    token_times_s: list[float] = field(default_factory=list)
    text: str = ""
    error: str | None = None
    is_counted: bool = False

    @property
    def ttft_s(self) -> float:
        """Time to the first token; of an answer without any text, to its end."""
        return (self.token_times_s[0] if self.token_times_s else self.end_s) - self.start_s

    @property
    def e2e_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None if there is no second one."""
        if self.num_output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.num_output_tokens - 1)

    @property
    def itls_s(self) -> list[float]:
        """Between one chunk and the next: a server that sends several tokens at once has fewer."""
        return [after - before for before, after in pairwise(self.token_times_s)]
