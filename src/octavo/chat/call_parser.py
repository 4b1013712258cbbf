# SPDX-License-Identifier: Apache-2.0
"""Calls in the text of an answer: what all ways of writing them have in common.

A parser is a small state machine over a buffer. A state is a method that reads from the buffer and
says whether another state may read on; it decides by the characters alone, never by where the text
happened to be cut. Text that begins like a call is held until it is one, or until it is none: then
its opening becomes ``Content`` and the rest is read again as text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from octavo.chat.call_text import CallText
from octavo.chat.parts import Content, Part, ToolArguments, ToolCall
from octavo.chat.tags import SPACE_MAX, before_tag, overlap

# A state may copy the rest of the buffer each time. So a long text, given whole or held and then
# found to be no call, is read in pieces of this size, and costs what its length costs.
PIECE_CHARS = 1024


class NewCallId(Protocol):
    def __call__(self) -> str:
        """An id that no other call has."""


class CallParser:
    """``AnswerParser`` for text in which a tag, or a bracket at the beginning, opens calls.

    ``bare``: characters with which a call may begin where no text has come before it, without the
    tag. Only tools among ``names`` can be called. White space around calls belongs to them and is
    dropped. A subclass reads what follows an opening: ``_begin``.
    """

    def __init__(
        self, tag: str, *, bare: str, names: Collection[str], new_call_id: NewCallId
    ) -> None:
        self._tag = tag
        self._bare = bare
        self._names = frozenset(names)
        self._new_call_id = new_call_id
        self._buffer = ""
        self._unread: list[str] = []  # what comes after the buffer, in reverse
        self._opening = ""  # taken from the buffer, and content if this is no call after all
        self._may_be_bare = bool(bare)
        self._num_calls = 0
        self._parts: list[Part] = []
        self._state: Callable[[], bool] = self._text

    def feed(self, text: str) -> list[Part]:
        self._unread.append(text)
        self._run()
        return self._take()

    def finish(self) -> list[Part]:
        while self._state in (self._begin, *self._undecided()):
            self._fail()
            self._run()
        if self._state == self._text:
            self._say(self._buffer)
        self._buffer = ""
        return self._take()

    def _begin(self) -> bool:
        """The state after an opening."""
        raise NotImplementedError

    def _undecided(self) -> tuple[Callable[[], bool], ...]:
        """Further states in which it is not known yet whether this is a call."""
        return ()

    def _text(self) -> bool:
        if self._may_be_bare:
            rest = self._buffer.lstrip()
            is_near = len(self._buffer) - len(rest) <= SPACE_MAX
            if not rest and is_near:
                return False
            self._may_be_bare = False
            if is_near and rest[0] in self._bare:
                return self._open(len(self._buffer) - len(rest))
        found = self._buffer.find(self._tag) if self._tag else -1
        if found >= 0:
            self._pass_text(found)
            return self._open(len(self._buffer) - len(self._buffer.lstrip()) + len(self._tag))
        self._pass_text(len(self._buffer) - overlap(self._buffer, self._tag))
        return False

    def _pass_text(self, end: int) -> None:
        """Say the text before ``end``, all but the white space that may belong to a call."""
        text = self._buffer[:end]
        if self._tag:
            text = before_tag(text)
        self._say(text)
        self._buffer = self._buffer[len(text) :]

    def _open(self, length: int) -> bool:
        """A call may begin: the next ``length`` characters of the buffer open it."""
        self._opening = ""
        self._advance(length)
        self._state = self._begin
        return True

    def _advance(self, length: int) -> None:
        self._opening += self._buffer[:length]
        self._buffer = self._buffer[length:]

    def _fail(self) -> bool:
        """It is no call: its opening is text."""
        self._say(self._opening)
        self._opening = ""
        self._unread.append(self._buffer)
        self._buffer = ""
        self._may_be_bare = False
        self._state = self._text
        return True

    def _leave(self) -> bool:
        """The calls are over, and text may follow."""
        self._opening = ""
        self._may_be_bare = bool(self._bare)
        self._state = self._between
        return True

    def _between(self) -> bool:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return False
        self._state = self._text
        return True

    def _start_call(self, name: str) -> None:
        self._parts.append(ToolCall(self._num_calls, self._new_call_id(), name))
        self._num_calls += 1
        self._opening = ""

    def _whole_call(self, call: CallText) -> None:
        self._start_call(call.name)
        self._argue(call.arguments)

    def _argue(self, text: str) -> None:
        """A piece of the arguments of the newest call."""
        if text:
            self._parts.append(ToolArguments(self._num_calls - 1, text))

    def _say(self, text: str) -> None:
        if text:
            self._parts.append(Content(text))

    def _run(self) -> None:
        while True:
            while self._state():
                pass
            if not self._unread:
                return
            piece = self._unread.pop()
            if len(piece) > PIECE_CHARS:
                self._unread.append(piece[PIECE_CHARS:])
            self._buffer += piece[:PIECE_CHARS]

    def _take(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts
