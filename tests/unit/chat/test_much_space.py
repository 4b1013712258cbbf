# SPDX-License-Identifier: Apache-2.0
"""Models that write nothing but white space, or are made to: it is held for a tag, but not all."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from octavo.chat.json_calls import JsonCallParser, JsonSyntax
from octavo.chat.parts import AnswerParser, Part
from octavo.chat.plain import PlainParser
from octavo.chat.pythonic_calls import PythonicCallParser
from octavo.chat.reasoning import ReasoningParser, ReasoningTags
from octavo.chat.tags import SPACE_MAX
from octavo.chat.whole_answer import joined

HERMES = JsonSyntax(tag="<tool_call>", end_tag="</tool_call>")
BARE = JsonSyntax(tag="<|python_tag|>", bare=True)
NAMED = JsonSyntax(tag="[TOOL_CALLS]", named=True)
THINK = ReasoningTags("<think>", "</think>")


def json_calls(syntax: JsonSyntax) -> AnswerParser:
    return JsonCallParser(syntax, names=["f"], new_call_id=lambda: "id")


PARSERS: dict[str, Callable[[], AnswerParser]] = {
    "hermes": lambda: json_calls(HERMES),
    "llama3_json": lambda: json_calls(BARE),
    "mistral": lambda: json_calls(NAMED),
    "pythonic": lambda: PythonicCallParser(names=["f"], new_call_id=lambda: "id"),
    "reasoning": lambda: ReasoningParser(THINK, PlainParser(), starts_inside=False),
    "inside": lambda: ReasoningParser(THINK, PlainParser(), starts_inside=True),
}
CALL = '{"name": "f", "arguments": {}'
# "~" is where the white space goes.
TEXTS = (
    "~",
    "~a",
    f"a~<tool_call>{CALL}}}~</tool_call>~b",
    f"<tool_call>~{CALL}~,~",
    f"<tool_call>~<tool_call>{CALL}~}}~{CALL}}}",
    f"~{CALL}}}~;~{CALL}}}",
    f"[TOOL_CALLS]~[~{CALL}~}}~,~{CALL}}}~]~x",
    "[TOOL_CALLS]~f~{}~",
    "~[f()~,~f()~]~",
    "<|python_start|>~[f()~]~<|python_end|>~x",
    "<|python_start|>~<|python_start|>~[f()]",
    "~<think>~so~</think>~then",
    "so~</think>~then~",
)


def parts_of(parser: AnswerParser, pieces: list[str]) -> list[Part]:
    parts = [part for piece in pieces for part in parser.feed(piece)]
    return parts + parser.finish()


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("text", TEXTS)
def test_where_the_text_is_cut_changes_nothing(name: str, text: str) -> None:
    rng = random.Random(f"{name} {text}")
    for num_spaces in (SPACE_MAX, SPACE_MAX + 1, 3 * SPACE_MAX):
        whole = text.replace("~", " " * num_spaces)
        wanted = joined(parts_of(PARSERS[name](), [whole]))
        for width in (rng.randrange(5, 50), rng.randrange(50, 900), SPACE_MAX):
            pieces = [whole[i : i + width] for i in range(0, len(whole), width)]
            assert joined(parts_of(PARSERS[name](), pieces)) == wanted, (num_spaces, width)


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("text", TEXTS)
def test_little_of_it_is_held(name: str, text: str) -> None:
    """What is held is looked at again for each token, on the server's event loop: 80,000 spaces one
    by one took 12 s."""
    parser = PARSERS[name]()
    for piece in text.split("~"):
        parser.feed(piece)
        for _ in range(10):
            parser.feed(" " * SPACE_MAX)
            held: str = parser._buffer  # type: ignore[attr-defined]
            assert len(held) <= 2 * SPACE_MAX
