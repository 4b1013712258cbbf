# SPDX-License-Identifier: Apache-2.0
"""Calls written as JSON objects: ``{"name": ..., "arguments": {...}}`` behind some tag.

The name is given as soon as the arguments begin, and the arguments as they come, in the words of
the model. From then on it is a call for good: if what follows turns out to be no JSON, the
arguments end there, and the rest is text. An object that has the name after the arguments, or the
arguments in a string, is held until it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from octavo.chat.call_parser import CallParser, NewCallId
from octavo.chat.call_text import call_of_json
from octavo.chat.json_scanner import Ending, JsonScanner

HEADER_CHARS_MAX = 1024  # a longer name is held with its object instead: tried at each piece

_WS = r"[ \t\r\n]*"
_HEADER = re.compile(
    rf'{_WS}\{{{_WS}(?:"type"{_WS}:{_WS}"function"{_WS},{_WS})?'
    rf'"name"{_WS}:{_WS}"(?P<name>[^"\\]*)"{_WS},{_WS}"(?:arguments|parameters)"{_WS}:{_WS}(?=\{{)'
)
_FIRST_KEY = re.compile(rf'{_WS}\{{{_WS}"(?P<key>[^"\\]*)"')
_CALL_KEYS = frozenset({"name", "arguments", "parameters", "type", "function", "id"})

# Mistral's newer way: name[ARGS]{...}, perhaps with name[CALL_ID]id before it.
_NAMED = re.compile(
    r"\s*(?P<name>[A-Za-z0-9_.-]{1,128})\s*(?:\[CALL_ID\]\s*[A-Za-z0-9]{1,64}\s*)?(?:\[ARGS\]\s*)?"
)
_NOT_NAMED = re.compile(r"[^\w.\-\[\]\s]")


@dataclass(frozen=True, slots=True)
class JsonSyntax:
    """``tag`` opens the calls, ``end_tag`` closes them where there is one; ``bare``: an answer may
    begin with the JSON itself; ``named``: a name may stand before the arguments instead of in an
    object; ``only``: the text is nothing but the arguments of this tool.
    """

    tag: str = ""
    end_tag: str = ""
    bare: bool = False
    named: bool = False
    only: str | None = None


class JsonCallParser(CallParser):
    """An object, objects one after the other, or an array of them; see the module."""

    def __init__(
        self, syntax: JsonSyntax, *, names: Collection[str], new_call_id: NewCallId
    ) -> None:
        bare = "{[" if syntax.bare else ""
        super().__init__(syntax.tag, bare=bare, names=names, new_call_id=new_call_id)
        self._syntax = syntax
        self._in_array = False
        self._in_object = False  # the arguments are a member of an object, not the object itself
        self._scanner = JsonScanner()
        self._scanned = 0  # characters of the buffer that the scanner has read

    def _undecided(self) -> tuple[Callable[[], bool], ...]:
        return (self._object, self._name)

    def _begin(self) -> bool:
        rest = self._buffer.lstrip()
        self._advance(len(self._buffer) - len(rest))
        if not rest:
            return False
        if self._syntax.only is not None:
            return self._commit(self._syntax.only, 0, in_object=False)
        self._in_array = rest[0] == "["
        if self._in_array:
            self._advance(1)
        elif rest[0] != "{" and self._syntax.named:
            self._state = self._name
            return True
        return self._expect_object()

    def _expect_object(self) -> bool:
        self._scanner, self._scanned = JsonScanner(), 0
        self._state = self._object
        return True

    def _object(self) -> bool:
        """Before the arguments of a call: anything may still turn out to be none."""
        rest = self._buffer.lstrip()
        if self._scanned == 0:
            self._advance(len(self._buffer) - len(rest))
        if not rest:
            return False
        head = self._buffer[:HEADER_CHARS_MAX]
        if header := _HEADER.match(head):
            return self._commit(header["name"], header.end(), in_object=True)
        first = _FIRST_KEY.match(head)
        if rest[0] != "{" or (first and first["key"] not in _CALL_KEYS):
            return self._fail()
        self._scanned, ending = self._scanner.scan(self._buffer, self._scanned)
        if ending is Ending.OPEN:
            return False
        call = call_of_json(self._buffer[: self._scanned]) if ending is Ending.CLOSED else None
        if call is None or call.name not in self._names:
            return self._fail()
        self._buffer = self._buffer[self._scanned :]
        self._whole_call(call)
        self._state = self._after_object
        return True

    def _name(self) -> bool:
        """A name before its arguments, which begin at the first brace."""
        head = self._buffer[:HEADER_CHARS_MAX]
        brace = head.find("{")
        if brace < 0:
            if len(head) == HEADER_CHARS_MAX or _NOT_NAMED.search(head):
                return self._fail()
            return False
        named = _NAMED.fullmatch(head[:brace])
        return self._commit(named["name"], brace, in_object=False) if named else self._fail()

    def _commit(self, name: str, length: int, *, in_object: bool) -> bool:
        """The arguments begin after ``length`` characters: it is a call, if of a tool at all."""
        if name not in self._names or self._buffer[length] != "{":
            return self._fail()
        if self._syntax.only is not None:
            self._bare = ""  # the answer is this one call
        self._buffer = self._buffer[length:]
        self._start_call(name)
        self._in_object = in_object
        self._scanner = JsonScanner()
        self._state = self._arguments
        return True

    def _arguments(self) -> bool:
        end, ending = self._scanner.scan(self._buffer)
        self._argue(self._buffer[:end])
        self._buffer = self._buffer[end:]
        if ending is Ending.OPEN:
            return False
        is_member = self._in_object and ending is Ending.CLOSED
        self._state = self._after_arguments if is_member else self._after_object
        return True

    def _after_arguments(self) -> bool:
        """The rest of the object that held them. Models forget its brace now and then."""
        rest = self._buffer = self._buffer.lstrip()
        if not rest:
            return False
        behind = rest[1:].lstrip()
        if rest[0] == ",":
            rest = self._buffer = f",{behind}"
        if rest[0] == "," and not behind:
            return False
        if rest[0] == "," and behind[0] == '"':
            self._scanner = JsonScanner(inside="{")
            self._state = self._other_members
        else:
            self._buffer = rest.removeprefix("}")
            self._state = self._after_object
        return True

    def _other_members(self) -> bool:
        """What else the object says is of no use."""
        end, ending = self._scanner.scan(self._buffer)
        self._buffer = self._buffer[end:]
        if ending is Ending.OPEN:
            return False
        self._state = self._after_object
        return True

    def _after_object(self) -> bool:
        rest = self._buffer = self._buffer.lstrip()
        if not rest:
            return False
        if self._in_array and rest[0] == ",":
            self._advance(1)
            return self._expect_object()
        if self._in_array and rest[0] == "]":
            self._buffer = rest[1:]
        self._in_array = False
        self._state = self._after_calls
        return True

    def _after_calls(self) -> bool:
        rest, end_tag = self._buffer.lstrip(), self._syntax.end_tag
        self._buffer = rest
        if not rest:
            return False
        if end_tag and rest.startswith(end_tag):
            self._buffer = rest[len(end_tag) :]
            return self._leave()
        if end_tag.startswith(rest):
            return False
        if rest[0] == "{" and self._syntax.only is None:
            return self._expect_object()
        if rest[0] == ";" and self._bare:
            self._advance(1)
            return self._expect_object()
        return self._leave()
