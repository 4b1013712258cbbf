# SPDX-License-Identifier: Apache-2.0
"""Where a JSON object ends, in a text that comes in pieces."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

# What stands outside of strings beside brackets and quotes: numbers, literals, separators.
_OUTSIDE = re.compile(r"[^ \t\r\n0-9A-Za-z,:.+\-]")
_INSIDE = re.compile(r'["\\]')
_OPENERS = {"}": "{", "]": "["}


class Ending(Enum):
    OPEN = auto()  # more is to come
    CLOSED = auto()  # the value is complete
    BROKEN = auto()  # here stands what no JSON holds there


class Scan(NamedTuple):
    """``end``: the characters of the text that were read, which are part of the value."""

    end: int
    ending: Ending


class JsonScanner:
    """Follows brackets and strings; not a validator: ``[1 2 tru]`` passes.

    ``scan`` may be called again with more text while it answers OPEN. It costs O(characters), and
    what it says does not depend on how the text is cut.
    """

    __slots__ = ("_escaped", "_in_string", "_stack")

    def __init__(self, inside: str = "") -> None:
        """``inside``: the brackets that are open already, outermost first."""
        self._stack = list(inside)
        self._in_string = False
        self._escaped = False

    def scan(self, text: str, start: int = 0) -> Scan:
        """Read ``text[start:]``, which continues what was read before."""
        at = start
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if found is None:
                break
            at = found.end()
            if not self._step(found.group()):
                return Scan(at - 1, Ending.BROKEN)
            if not self._stack:
                return Scan(at, Ending.CLOSED)
        return Scan(len(text), Ending.OPEN)

    def _step(self, char: str) -> bool:
        """Take a quote, a backslash or a bracket; False for anything else."""
        if char == '"':
            self._in_string = not self._in_string
        elif self._in_string:
            self._escaped = True
        elif char in "{[":
            self._stack.append(char)
        elif self._stack and self._stack[-1] == _OPENERS.get(char):
            self._stack.pop()
        else:
            return False
        return True
