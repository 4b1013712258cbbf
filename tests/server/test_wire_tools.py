# SPDX-License-Identifier: Apache-2.0
"""Tools and reasoning in the words of /v1/responses and /v1/messages."""

from __future__ import annotations

import json

import pytest
from anthropic.types import Message
from serverkit import MODEL, ReciteEngine, connect, make_app
from wirecheck import events

import templatekit

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CITY = {"city": "Zürich"}
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {json.dumps(CITY)}}}\n</tool_call>'
ANSWER = f"Sure.\n{CALL}{CALL}"
RESPONSES = {
    "input": "Hi",
    "tools": [{"type": "function", "name": "get_weather", "parameters": SCHEMA}],
}
MESSAGES = {
    "model": MODEL,
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"name": "get_weather", "description": "weather", "input_schema": SCHEMA}],
}


def reciting(answer: str, source: str = templatekit.HERMES) -> ReciteEngine:
    engine = ReciteEngine(answer)
    engine.tokenizer = templatekit.TemplateTokenizer(engine.tokenizer, source)
    return engine


async def post(path: str, body: dict, engine: ReciteEngine):
    async with connect(make_app(engine)) as client:
        return await client.post(path, json=body)


async def test_calls_are_items_of_a_response():
    answer = (await post("/v1/responses", RESPONSES, reciting(ANSWER))).json()
    message, first, second = answer["output"]
    assert message["content"][0]["text"] == "Sure."
    assert first["type"] == "function_call"
    assert (first["name"], json.loads(first["arguments"])) == ("get_weather", CITY)
    assert first["call_id"] != second["call_id"]
    stream = await post("/v1/responses", {**RESPONSES, "stream": True}, reciting(ANSWER))
    found = events(stream.content)
    done = [event for event in found if event["type"].endswith("arguments.done")]
    assert [event["arguments"] for event in done] == [first["arguments"], second["arguments"]]
    assert [item["type"] for item in found[-1]["response"]["output"]] == [
        item["type"] for item in answer["output"]
    ]


async def test_calls_are_blocks_of_a_message():
    answer = (await post("/v1/messages", MESSAGES, reciting(ANSWER))).json()
    Message.model_validate(answer)
    text, first, second = answer["content"]
    assert text == {"type": "text", "text": "Sure."}
    assert (first["type"], first["name"], first["input"]) == ("tool_use", "get_weather", CITY)
    assert first["id"] != second["id"]
    assert answer["stop_reason"] == "tool_use"


async def test_a_conversation_with_calls_reaches_the_template():
    """The same history in three spellings is the same prompt."""
    call = {"id": "call_1", "type": "function"}
    chat = [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": "Sure.",
            "tool_calls": [
                {**call, "function": {"name": "get_weather", "arguments": json.dumps(CITY)}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "user", "content": "And now?"},
    ]
    items = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Sure."}]},
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "get_weather",
            "arguments": json.dumps(CITY),
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
    ]
    blocks = [
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Sure."},
                {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": CITY},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "call_1",
                    "content": [{"type": "text", "text": "rain"}],
                },
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    engine = reciting("ok")
    await post("/v1/chat/completions", {"messages": chat}, engine)
    await post("/v1/responses", {"input": items}, engine)
    await post("/v1/messages", {**MESSAGES, "messages": blocks, "tools": None}, engine)
    prompts = {request.prompt for request in engine.requests}
    assert len(engine.requests) == 3
    (prompt,) = prompts
    for piece in ("Sure.", "get_weather", "rain", "And now?"):
        assert piece in prompt


async def test_reasoning_is_an_item_and_a_block():
    answer = "<think>\nLet me see.\n</think>\n\nYes."
    response = (
        await post("/v1/responses", {"input": "Hi"}, reciting(answer, templatekit.THINKING))
    ).json()
    reasoning, message = response["output"]
    assert reasoning["content"][0]["text"].strip() == "Let me see."
    assert message["content"][0]["text"] == "Yes."
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 5
    body = {**MESSAGES, "tools": None}
    document = (await post("/v1/messages", body, reciting(answer, templatekit.THINKING))).json()
    thinking, text = document["content"]
    assert thinking["thinking"].strip() == "Let me see."
    assert text["text"] == "Yes."


async def test_thinking_may_be_disabled():
    engine = reciting("Yes.", templatekit.THINKING)
    body = {**MESSAGES, "tools": None}
    await post("/v1/messages", body, engine)
    await post("/v1/messages", {**body, "thinking": {"type": "disabled"}}, engine)
    assert engine.requests[0].prompt != engine.requests[1].prompt


async def test_a_begun_answer_is_continued():
    engine = reciting("ris.")
    messages = [*MESSAGES["messages"], {"role": "assistant", "content": "Pa"}]
    answer = await post("/v1/messages", {**MESSAGES, "messages": messages, "tools": None}, engine)
    assert answer.status_code == 200, answer.text
    assert engine.requests[0].prompt.endswith("Pa")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/v1/responses",
            {**RESPONSES, "tools": [{"type": "function", "name": "no spaces"}]},
            "tools[0].name",
        ),
        (
            "/v1/messages",
            {**MESSAGES, "tools": [{"name": "f", "input_schema": {"type": "array"}}]},
            "tools[0].input_schema.type",
        ),
        ("/v1/messages", {**MESSAGES, "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
        ("/v1/responses", {"input": "Hi", "tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_a_bad_tool_is_named_as_the_caller_spells_it(path, body, param):
    response = await post(path, body, reciting("ok"))
    assert response.status_code == 400
    error = response.json()["error"]
    assert param in error["message"]
    if path == "/v1/responses":
        assert error["param"] == param
