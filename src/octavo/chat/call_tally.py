# SPDX-License-Identifier: Apache-2.0
"""Whether an answer calls something, and whether it ended in the midst of a call."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.chat.json_scanner import Ending, JsonScanner
from octavo.chat.parts import Part, ToolArguments, ToolCall


class CallTally:
    """Keeps state; one per sample, which is given all of its parts."""

    def __init__(self) -> None:
        self._has_called = False
        self._is_open = False  # the newest call's arguments are not complete
        self._scanner = JsonScanner()

    def add(self, parts: Iterable[Part]) -> None:
        for part in parts:
            match part:
                case ToolCall():
                    self._has_called = self._is_open = True
                    self._scanner = JsonScanner()
                case ToolArguments(text=text) if self._is_open:
                    self._is_open = self._scanner.scan(text).ending is Ending.OPEN

    @property
    def is_within_call(self) -> bool:
        """A stop string, say, has cut the newest call short: nobody can make it."""
        return self._is_open

    @property
    def is_for_tools(self) -> bool:
        """There are calls, and the newest is complete: the answer waits for their results."""
        return self._has_called and not self._is_open
