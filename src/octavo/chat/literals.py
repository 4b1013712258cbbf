# SPDX-License-Identifier: Apache-2.0
"""Python calls with literal arguments, read without running anything: ``f(city="Rome", n=[1])``."""

from __future__ import annotations

import re

from octavo.chat.call_text import CallText, make_call

DEPTH_MAX = 64  # lists in lists; each is a level of recursion
_NUMBER_CHARS_MAX = 400  # int() takes quadratic time, and floats have no more digits that matter

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
      (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*)
    | (?P<mark>[()\[\]{}:,=])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}


def call_of_python(text: str) -> CallText | None:
    """The call that ``name(key=literal, ...)`` spells; None for anything else."""
    try:
        reader = _Reader(text)
        name = reader.word()
        arguments = reader.arguments()
        reader.expect_end()
    except ValueError:
        return None
    return make_call(name, arguments)


class _Reader:
    """Recursive descent over tokens. Every mistake is a ``ValueError``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next()

    def word(self) -> str:
        return self._expect("word")

    def arguments(self) -> dict[str, object]:
        found: dict[str, object] = {}
        self._expect("mark", "(")
        while not self._skip(")"):
            name = self._expect("word")
            self._expect("mark", "=")
            if name in found:
                raise ValueError(f"{name} is given twice")
            found[name] = self._value(0)
            if not self._skip(","):
                self._expect("mark", ")")
                break
        return found

    def expect_end(self) -> None:
        self._expect("end")

    def _value(self, depth: int) -> object:
        kind, text = self._kind, self._token
        if depth > DEPTH_MAX:
            raise ValueError("nests too deep")
        if kind == "mark" and text in ("[", "(", "{"):
            self._next()
            return self._mapping(depth) if text == "{" else self._list(depth, text)
        self._next()
        if kind == "string":
            return self._strings(text)
        if kind == "number":
            return _number(text)
        if kind == "word" and text in _WORDS:
            return _WORDS[text]
        raise ValueError(f"no literal: {text[:20]}")

    def _strings(self, text: str) -> str:
        """A string and those that follow it directly, which Python joins."""
        whole = _string(text)
        while self._kind == "string":
            whole += _string(self._token)
            self._next()
        return whole

    def _list(self, depth: int, opener: str) -> list[object]:
        closer = "]" if opener == "[" else ")"
        found: list[object] = []
        while not self._skip(closer):
            found.append(self._value(depth + 1))
            if not self._skip(","):
                self._expect("mark", closer)
                break
        return found

    def _mapping(self, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while not self._skip("}"):
            key = _string(self._expect("string"))
            self._expect("mark", ":")
            found[key] = self._value(depth + 1)
            if not self._skip(","):
                self._expect("mark", "}")
                break
        return found

    def _skip(self, mark: str) -> bool:
        if self._kind != "mark" or self._token != mark:
            return False
        self._next()
        return True

    def _expect(self, kind: str, token: str | None = None) -> str:
        got = self._token
        if self._kind != kind or token not in (None, got):
            raise ValueError(f"got {got[:20]!r}, wanted {token or kind}")
        if kind != "end":
            self._next()
        return got

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"no token at {self._at}")
        self._at = match.end()
        self._kind, self._token = match.lastgroup, match[match.lastgroup]


def _string(token: str) -> str:
    return _ESCAPE.sub(_unescaped, token[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))  # ValueError above the last code point
    return _ESCAPES.get(code, code if code in "\\'\"" else match[0])


def _number(text: str) -> int | float:
    if len(text) > _NUMBER_CHARS_MAX:
        raise ValueError("a number of absurd length")
    return float(text) if set(text) & set(".eE") else int(text)
