# SPDX-License-Identifier: Apache-2.0
"""Whatever a model writes: the parts do not depend on the pieces, and words do not get lost."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatkit import TOOLS, content_of, cut, make_parser, merged, numbered_ids, parts_of
from octavo.chat.dialect import REASONING_PARSERS, Dialect, ToolFormat
from octavo.chat.parts import Content, Part, Reasoning, ToolArguments, ToolCall
from octavo.chat.tools import ToolChoice, ToolMode

FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]abc",
    "<|python_start|>", "<|python_end|>", "<think>", "</think>", "<tool", "[TOOL", "</", "<",
    '{"name": "get_time", "arguments": ', '{"name": "rm", "parameters": ', '{"arguments": {',
    '"name": "get_weather"', '{"a": "', "{", "}", "[", "]", ",", ";", '"', "'", "\\", ":",
    "get_time", "get_weather(", "a=", "(", ")", "1", " ", "\n", "\u00e9\U0001f30d",
]  # fmt: skip
TEXTS = st.lists(
    st.sampled_from(FRAGMENTS) | st.integers(0, 9).map(" w{} ".format) | st.text(max_size=3),
    max_size=25,
).map("".join)
CUTS = st.lists(st.integers(0, 300), max_size=12)
FORMS = st.sampled_from(list(ToolFormat))


def make(form: ToolFormat, reasoning: str | None, choice: ToolChoice, prompt: str):
    tags = REASONING_PARSERS[reasoning] if reasoning else None
    dialect = Dialect(tools=form, renders_tools=True, reasoning=tags)
    return dialect.parser(new_call_id=numbered_ids(), tools=TOOLS, choice=choice, prompt=prompt)


CHOICES = st.sampled_from(
    [
        ToolChoice(),
        ToolChoice(ToolMode.NONE),
        ToolChoice(ToolMode.REQUIRED),
        ToolChoice(ToolMode.REQUIRED, "get_time"),
    ]
)


@settings(max_examples=500, deadline=None)
@given(
    form=FORMS,
    reasoning=st.sampled_from([None, *REASONING_PARSERS]),
    choice=CHOICES,
    prompt=st.sampled_from(["", "<think>\n", "</think>"]),
    text=TEXTS,
    places=CUTS,
)
def test_parts_do_not_depend_on_the_pieces(form, reasoning, choice, prompt, text, places):
    whole = parts_of(make(form, reasoning, choice, prompt), [text])
    assert parts_of(make(form, reasoning, choice, prompt), cut(text, places)) == whole
    assert parts_of(make(form, reasoning, choice, prompt), text) == whole
    check_shape(whole)


def check_shape(parts: list[Part]) -> None:
    """Calls are counted from 0, each begins before its arguments, and nothing is empty."""
    num_calls = 0
    for part in parts:
        match part:
            case ToolCall(index, _, name):
                assert (index, name in {tool.name for tool in TOOLS}) == (num_calls, True)
                num_calls += 1
            case ToolArguments(index, text):
                assert index == num_calls - 1
                assert text.startswith("{")
            case Content(text) | Reasoning(text):
                assert text


@settings(max_examples=400, deadline=None)
@given(form=FORMS, text=TEXTS.filter(lambda text: not re.search(r',\s*"', text)))
def test_words_are_in_the_answer_or_in_the_arguments(form, text):
    """Further members of a call's object are dropped: they begin with a comma and a quote."""
    parts = parts_of(make_parser(form), [text])
    shown = "".join(part.text for part in parts if isinstance(part, Content | ToolArguments))
    assert re.findall(r"\bw\d\b", shown) == re.findall(r"\bw\d\b", text)


@settings(max_examples=100, deadline=None)
@given(form=FORMS, text=st.text(alphabet=st.characters(exclude_characters="<[{"), max_size=60))
def test_plain_text_is_its_own_content(form, text):
    assert content_of(parts_of(make_parser(form), text)) == text


@settings(max_examples=100, deadline=None)
@given(form=FORMS, text=st.text(alphabet="ab <[\n", max_size=40))
def test_only_what_may_become_a_tag_is_held_back(form, text):
    parser = make_parser(form)
    shown = content_of(merged(parser.feed("x" + text)))
    held = ("x" + text)[len(shown) :]
    tags = ("<tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "<|python_start|>")
    assert any(tag.startswith(held.lstrip()) for tag in tags)


def test_a_parser_that_forgets_what_it_holds_would_be_caught():
    text = "a <tool_call>{"
    parser = make_parser(ToolFormat.HERMES)
    lossy = [part for piece in text for part in parser.feed(piece)]  # without finish()
    assert content_of(lossy) != content_of(parts_of(make_parser(ToolFormat.HERMES), [text]))


OPENINGS = {
    ToolFormat.HERMES: '<tool_call>{"arguments": {"a": "',
    ToolFormat.LLAMA3_JSON: '{"arguments": {"a": "',
    ToolFormat.MISTRAL: '[TOOL_CALLS][{"arguments": {"a": "',
    ToolFormat.PYTHONIC: '[get_time(a="',
}


@pytest.mark.parametrize("form", ToolFormat)
def test_text_that_may_become_a_call_is_held_to_the_end(form):
    parser = make_parser(form)
    assert parser.feed(OPENINGS[form]) == []
    for _ in range(1000):
        assert parser.feed("x" * 100) == []
    assert content_of(parser.finish()) == OPENINGS[form] + "x" * 100_000


HOSTILE = [
    "<tool_call>", "<tool_call>{", '<tool_call>{"', "<tool_call>{\\",
    "[TOOL_CALLS][", "<|python_tag|>{",
    "<|python_start|>[get_time(", "<|python_start|>[get_time('", '<|python_start|>[get_time("',
    "{", "[", "[{", ";{", "\n", "get_time(",
]  # fmt: skip


@pytest.mark.parametrize("form", ToolFormat)
@pytest.mark.parametrize("tail", ["", '"<'])
def test_no_text_takes_more_than_its_length(form, tail):
    """100,000 characters each: read once they take milliseconds, once per tag half a minute."""
    started = time.process_time()
    for opening in ("", OPENINGS[form]):
        for fragment in HOSTILE:
            text = opening + fragment * (100_000 // len(fragment)) + tail
            assert content_of(parts_of(make_parser(form), [text])) == text
    assert time.process_time() - started < 5
