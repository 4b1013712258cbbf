# SPDX-License-Identifier: Apache-2.0
"""Calls written as a list of Python calls: ``[get_weather(city="Rome"), get_time()]``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from octavo.chat.call_parser import CallParser, NewCallId
from octavo.chat.literals import call_of_python

NAME_CHARS_MAX = 128
START_TAG, END_TAG = "<|python_start|>", "<|python_end|>"

_NAME = re.compile(r"\s*[A-Za-z_][\w.-]*")
_NAME_BEGUN = re.compile(r"\s*(?:[A-Za-z_][\w.-]*\s*)?")
_OUTSIDE = re.compile(r"[^\w\s,.:=+-]")
_INSIDE = {'"': re.compile(r'["\\\n]'), "'": re.compile(r"['\\\n]")}
_OPENERS = {")": "(", "]": "[", "}": "{"}


class PythonicCallParser(CallParser):
    """Each call is held until its last parenthesis: its arguments come in one piece, as JSON."""

    def __init__(self, *, names: Collection[str], new_call_id: NewCallId) -> None:
        super().__init__(START_TAG, bare="[", names=names, new_call_id=new_call_id)
        self._scanner = _CallScanner()

    def _undecided(self) -> tuple[Callable[[], bool], ...]:
        return (self._call,)

    def _begin(self) -> bool:
        rest = self._buffer.lstrip()
        self._advance(len(self._buffer) - len(rest))
        if not rest:
            return False
        if rest[0] != "[":
            return self._fail()
        self._advance(1)
        return self._expect_call()

    def _expect_call(self) -> bool:
        self._scanner = _CallScanner()
        self._state = self._call
        return True

    def _call(self) -> bool:
        head = self._buffer[: NAME_CHARS_MAX + 1]
        if self._opening.strip() == "," and head.lstrip().startswith("]"):  # a last comma is fine
            self._state = self._after_call
            return True
        name = head.partition("(")[0]
        if len(name) == len(head):
            if len(head) > NAME_CHARS_MAX or not _NAME_BEGUN.fullmatch(name):
                return self._fail()
            return False
        if not _NAME.fullmatch(name.rstrip()) or name.strip() not in self._names:
            return self._fail()
        end = self._scanner.end(self._buffer)
        if end is None:
            return False
        call = call_of_python(self._buffer[:end])
        if call is None:
            return self._fail()
        self._buffer = self._buffer[end:]
        self._whole_call(call)
        self._state = self._after_call
        return True

    def _after_call(self) -> bool:
        rest = self._buffer = self._buffer.lstrip()
        if not rest:
            return False
        if rest[0] == ",":
            self._advance(1)
            return self._expect_call()
        self._buffer = rest.removeprefix("]")
        self._state = self._after_calls
        return True

    def _after_calls(self) -> bool:
        rest = self._buffer = self._buffer.lstrip()
        if rest and not rest.startswith(END_TAG) and END_TAG.startswith(rest):
            return False
        if not rest:
            return False
        self._buffer = rest.removeprefix(END_TAG)
        return self._leave()


class _CallScanner:
    """Where a call ends in a text that grows: behind the parenthesis that closes its first."""

    def __init__(self) -> None:
        self._at = 0
        self._quote = ""
        self._stack: list[str] = []

    def end(self, text: str) -> int | None:
        """None: not yet. Where the text makes no sense is an end too: the reader will refuse it."""
        while self._at < len(text):
            found = (_INSIDE[self._quote] if self._quote else _OUTSIDE).search(text, self._at)
            if found is None:
                self._at = len(text)
                return None
            char = found.group()
            if char == "\\" and found.end() == len(text):  # what it escapes is still to come
                self._at = found.start()
                return None
            self._at = found.end() + (char == "\\")
            if not self._step(char):
                return self._at
        return None

    def _step(self, char: str) -> bool:
        """False where the call ends."""
        if char == "\n":
            return False
        if self._quote or char in "\"'":
            if char != "\\":
                self._quote = "" if self._quote else char
            return True
        if char in "([{":
            self._stack.append(char)
            return True
        if not self._stack or self._stack.pop() != _OPENERS.get(char):
            return False
        return bool(self._stack)
