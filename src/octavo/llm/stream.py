# SPDX-License-Identifier: Apache-2.0
"""The outputs of one request as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.types.outputs import RequestOutput


class Stream(Iterator["RequestOutput"]):
    """Iterates over outputs until one is finished. ``close`` ends the request early. Idempotent.

    A class and not a generator, whose ``finally`` does not run if it is closed, or dropped, before
    the first ``next``: the request would stay in the engine for ever.

    advance   what is new for the request; runs a step if nothing is
    end       the request is over, or nobody listens any more
    """

    def __init__(self, advance: Callable[[], list[RequestOutput]], end: Callable[[], None]) -> None:
        self._advance = advance
        self._end = end
        self._ready: deque[RequestOutput] = deque()
        self._is_over = False

    def __next__(self) -> RequestOutput:
        while not self._ready:
            if self._is_over:
                raise StopIteration
            try:
                self._ready += self._advance()
            except BaseException:  # Ctrl-C too: whatever stops the iteration ends the request
                self.close()
                raise
        output = self._ready.popleft()
        if output.finished:
            self.close()
        return output

    def close(self) -> None:
        self._ready.clear()
        if not self._is_over:
            self._is_over = True
            self._end()

    def __del__(self) -> None:
        self.close()
