# SPDX-License-Identifier: Apache-2.0
"""Parsers fed in pieces, and their parts joined."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from octavo.chat.dialect import Dialect, ToolFormat
from octavo.chat.parts import AnswerParser, Content, Part, Reasoning, ToolArguments, ToolCall
from octavo.chat.tools import Tool

TOOLS = (Tool("get_weather"), Tool("get_time"), Tool("ns.find-it"))


def numbered_ids() -> Callable[[], str]:
    counter = itertools.count()
    return lambda: f"id{next(counter)}"


def make_parser(form: ToolFormat, *, tools: Sequence[Tool] = TOOLS, **options) -> AnswerParser:
    dialect = Dialect(tools=form, renders_tools=True)
    return dialect.parser(new_call_id=numbered_ids(), tools=tools, **options)


def parts_of(parser: AnswerParser, pieces: Iterable[str]) -> list[Part]:
    """All parts, in order, with neighbours of a kind joined: what cannot depend on the pieces."""
    parts = [part for piece in pieces for part in parser.feed(piece)]
    return merged([*parts, *parser.finish()])


def merged(parts: Iterable[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        match last, part:
            case Content(old), Content(new):
                joined[-1] = Content(old + new)
            case Reasoning(old), Reasoning(new):
                joined[-1] = Reasoning(old + new)
            case ToolArguments(index, old), ToolArguments(new_index, new) if index == new_index:
                joined[-1] = ToolArguments(index, old + new)
            case _:
                joined.append(part)
    return joined


def call(index: int, name: str, arguments: str) -> list[Part]:
    parts: list[Part] = [ToolCall(index, f"id{index}", name)]
    return [*parts, ToolArguments(index, arguments)] if arguments else parts


def content_of(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Content))


def cut(text: str, places: Iterable[int]) -> list[str]:
    """The text in pieces, cut at these places."""
    ends = sorted({min(place, len(text)) for place in places} | {len(text)})
    return [text[start:end] for start, end in itertools.pairwise([0, *ends])]
