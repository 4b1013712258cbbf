# SPDX-License-Identifier: Apache-2.0
"""GBNF to Lark, one symbol at a time: their operators are the same, so nothing is ever nested here
and no text is too deep.

Rules stay rules and characters stay characters: Lark's terminals are greedy, and a rule that became
one could swallow what follows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

_SYMBOLS = re.compile(
    r"""
      (?P<space>[ \t]+|\#[^\r\n]*)
    | (?P<newline>\r\n|\r|\n)
    | (?P<defines>::=)
    | (?P<name>[A-Za-z0-9_-]+)
    | (?P<literal>"(?:[^"\\\r\n]|\\.)*")
    | (?P<chars>\[(?:[^\]\\\r\n]|\\.)*\])
    | (?P<repeat>\{\s*\d+\s*(?:,\s*(?:\d+\s*)?)?\})
    | (?P<operator>[|()*+?])
    | (?P<dot>\.)
    """,
    re.VERBOSE,
)
_ESCAPES = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}
# Within one line: what may run on to the next is read again from there, in quadratic time.
_START = re.compile(
    r"^[ \t]*(?:%llguidance\b|start[ \t]*(?:\[[^\]\n]*\][ \t]*)?:(?!:=))", re.MULTILINE
)


class _Symbol(NamedTuple):
    kind: str
    text: str
    position: int


def is_lark(text: str) -> bool:
    """GBNF defines ``root`` by ``::=``, Lark ``start`` by a colon."""
    return _START.search(text) is not None


def gbnf_to_lark(text: str) -> str:
    """Raises ``ValueError`` that names the line. Linear in the text."""
    rules: dict[str, list[str]] = {}
    body: list[str] | None = None
    for symbol in _logical(text):
        if symbol.kind == "defines":
            name = symbol.text
            if name in rules:
                raise ValueError(f"line {_line(text, symbol)}: rule {name} is defined twice")
            body = rules[name] = []
        elif body is None:
            raise ValueError(f"line {_line(text, symbol)}: a rule begins with name ::=")
        else:
            body.append(_as_lark(symbol, text))
    if "root" not in rules:
        raise ValueError("no rule is named root")
    return _spelt(rules)


def _spelt(rules: dict[str, list[str]]) -> str:
    """GBNF's names have letters of both cases and dashes, Lark's do not: rules are numbered."""
    numbers = {name: "start" if name == "root" else f"r{i}" for i, name in enumerate(rules)}
    lines = []
    for name, body in rules.items():
        words = []
        for word in body:
            if not word.startswith("@"):
                words.append(word)
            elif word[1:] in numbers:
                words.append(numbers[word[1:]])
            else:
                raise ValueError(f"rule {name} refers to {word[1:]}, which is not defined")
        lines.append(f"{numbers[name]}: {' '.join(words)}")
    return "%llguidance {}\n" + "\n".join(lines) + "\n"


def _logical(text: str) -> Iterator[_Symbol]:
    """Symbols without spaces and line breaks; a name with its ``::=`` is one, of kind defines.

    A line break ends a rule where no bracket is open and nothing is awaited, so the next symbol
    must then be a definition; it is one wherever ``::=`` follows, so breaks need not be kept.
    """
    held: _Symbol | None = None
    for symbol in _symbols(text):
        if symbol.kind in ("space", "newline"):
            continue
        if symbol.kind == "defines":
            if held is None or held.kind != "name":
                raise ValueError(f"line {_line(text, symbol)}: ::= without a name before it")
            yield _Symbol("defines", held.text, held.position)
            held = None
            continue
        if held is not None:
            yield held
        held = symbol
    if held is not None:
        yield held


def _symbols(text: str) -> Iterator[_Symbol]:
    position = 0
    while position < len(text):
        match = _SYMBOLS.match(text, position)
        if match is None:
            where = text[position : position + 20]
            raise ValueError(f"line {text.count(chr(10), 0, position) + 1}: cannot read {where!r}")
        yield _Symbol(str(match.lastgroup), match.group(), position)
        position = match.end()


def _as_lark(symbol: _Symbol, text: str) -> str:
    match symbol.kind:
        case "name":
            return "@" + symbol.text
        case "literal":
            return json.dumps(_unescaped(symbol.text[1:-1]), ensure_ascii=False)
        case "chars":
            return f"/{_chars(symbol, text)}/"
        case "dot":
            return r"/(.|\n)/"
        case "repeat":
            return "".join(symbol.text.split())
    return symbol.text


def _chars(symbol: _Symbol, text: str) -> str:
    """A character class as a regular expression spells it, every character by its number."""
    inside = symbol.text[1:-1]
    negated = inside.startswith("^")
    if negated:
        inside = inside[1:]
    if not inside:
        raise ValueError(f"line {_line(text, symbol)}: a class of no characters")
    parts = []
    position = 0
    while position < len(inside):
        escape = _ESCAPES.match(inside, position)
        raw = escape.group() if escape else inside[position]
        is_range = raw == "-" and 0 < position < len(inside) - 1
        parts.append("-" if is_range else f"\\x{{{ord(_unescaped(raw)):x}}}")
        position += len(raw)
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        digits = match.group(1) or match.group(2) or match.group(3)
        if digits is None:
            return _LETTERS.get(match.group(4), match.group(4))
        code = int(digits, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ValueError(f"{match.group()} is no character")
        return chr(code)

    return _ESCAPES.sub(plain, text)


def _line(text: str, symbol: _Symbol) -> int:
    return text.count("\n", 0, symbol.position) + 1
