# SPDX-License-Identifier: Apache-2.0
"""Bodies that are nearly right: whatever is in them, the answer is one or a refusal by name."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serverkit import ReciteEngine, connect, make_app

import templatekit

WORDS = st.sampled_from(
    [
        "function",
        "get_time",
        "auto",
        "none",
        "required",
        "text",
        "tool",
        "user",
        "{}",
        "",
        "a b",
        "é",
    ]
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


def near(value: st.SearchStrategy) -> st.SearchStrategy:
    """Mostly this, sometimes anything."""
    return st.integers(0, 29).flatmap(lambda dice: value if dice else JUNK)


def record(required: dict | None = None, **optional: st.SearchStrategy) -> st.SearchStrategy:
    """An object that has the required fields and any of the others."""
    return st.fixed_dictionaries(
        {name: near(one) for name, one in (required or {}).items()},
        optional={name: near(one) for name, one in optional.items()},
    )


FUNCTION = st.just("function")
NAME = st.sampled_from(["get_time", "get_time", "auto", "a b"])
TEXT = st.fixed_dictionaries({"type": st.just("text"), "text": WORDS})
SCHEMA = record(type=st.just("object"))
TOOL = record(
    {"type": FUNCTION, "function": record({"name": NAME}, description=WORDS, parameters=SCHEMA)}
)
CALL = record(
    {
        "id": WORDS,
        "function": record({"name": NAME, "arguments": st.sampled_from(["{}", '{"a": 1}', "["])}),
    }
)
CONTENT = WORDS | st.lists(near(TEXT), min_size=1, max_size=2)
PLAIN_MESSAGE = record({"role": st.sampled_from(["system", "user"]), "content": CONTENT})
ASSISTANT = record(
    {"role": st.just("assistant"), "content": CONTENT | st.none()},
    tool_calls=st.lists(near(CALL), max_size=2),
    reasoning=WORDS,
)
RESULT = record({"role": st.just("tool"), "content": CONTENT, "tool_call_id": WORDS})
MESSAGE = PLAIN_MESSAGE | ASSISTANT | RESULT
BODY = record(
    {"messages": st.lists(near(MESSAGE), min_size=1, max_size=3)},
    tools=st.lists(near(TOOL), min_size=1, max_size=2),
    tool_choice=st.sampled_from(["auto", "none", "required", "maybe"])
    | record({"type": FUNCTION, "function": record({"name": NAME})}),
    parallel_tool_calls=st.booleans(),
    chat_template_kwargs=st.dictionaries(st.sampled_from(["a", "enable_thinking"]), JUNK),
    continue_final_message=st.booleans(),
    reasoning_effort=st.sampled_from(["none", "high"]),
    stream=st.booleans(),
)
SOURCES = [templatekit.PLAIN, templatekit.HERMES, templatekit.THINKING, templatekit.MISTRAL]


@pytest.mark.parametrize("source", SOURCES, ids=["plain", "hermes", "thinking", "mistral"])
@settings(max_examples=60, deadline=None)
@given(body=BODY)
def test_nearly_right_bodies_are_answered_or_refused(source: str, body: object) -> None:
    engine = ReciteEngine('<tool_call>{"name": "get_time", "arguments": {}}</tool_call>')
    engine.tokenizer = templatekit.TemplateTokenizer(engine.tokenizer, source)

    async def ask():
        async with connect(make_app(engine)) as client:
            return await client.post("/v1/chat/completions", json=body)

    response = asyncio.run(ask())
    assert response.status_code in (200, 400), response.text
    if response.status_code == 400:
        assert response.json()["error"]["message"]
