# SPDX-License-Identifier: Apache-2.0
"""The openai package as the client of tools and reasoning."""

from __future__ import annotations

import json

import httpx
import pytest
from openai import AsyncOpenAI
from serverkit import MODEL, ReciteEngine, make_app

import templatekit

pytestmark = pytest.mark.anyio

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


def client_of(answer: str, source: str = templatekit.HERMES) -> AsyncOpenAI:
    engine = ReciteEngine(answer)
    engine.tokenizer = templatekit.TemplateTokenizer(engine.tokenizer, source)
    transport = httpx.ASGITransport(make_app(engine))
    return AsyncOpenAI(
        api_key="none",
        base_url="http://octavo/v1",
        http_client=httpx.AsyncClient(transport=transport),
        max_retries=0,
    )


async def test_a_conversation_with_a_tool():
    async with client_of(f"Sure. {CALL}\n{CALL}") as client:
        first = await client.chat.completions.create(**ASK, tools=[TOOL])
        choice = first.choices[0]
        assert choice.finish_reason == "tool_calls"
        calls = choice.message.tool_calls
        assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Rome"}] * 2
        results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
        messages = [*ASK["messages"], choice.message, *results]
        second = await client.chat.completions.create(
            model=MODEL, messages=messages, tools=[TOOL], tool_choice="none"
        )
        assert second.choices[0].finish_reason == "stop"


async def test_a_stream_that_the_client_puts_together():
    async with client_of(f"Sure. {CALL}\n{CALL}") as client:
        async with client.chat.completions.stream(**ASK, tools=[TOOL]) as events:
            kinds = [event.type async for event in events]
            whole = await events.get_final_completion()
    message = whole.choices[0].message
    assert message.content == "Sure."
    assert [call.function.arguments for call in message.tool_calls] == ['{"city": "Rome"}'] * 2
    assert len({call.id for call in message.tool_calls}) == 2
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert message.tool_calls[0].function.parsed_arguments == {"city": "Rome"}


async def test_a_call_by_name():
    choice = {"type": "function", "function": {"name": "get_weather"}}
    async with client_of('{"city": "Rome"}', templatekit.PLAIN) as client:
        answer = await client.chat.completions.create(**ASK, tools=[TOOL], tool_choice=choice)
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "get_weather"


async def test_reasoning_is_an_extra_of_the_message():
    async with client_of("Hm.</think>Yes.", templatekit.THINKING) as client:
        answer = await client.chat.completions.create(**ASK)
        deltas = [
            chunk.choices[0].delta
            async for chunk in await client.chat.completions.create(**ASK, stream=True)
        ]
    message = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes.", "Hm.")
    assert "".join(getattr(delta, "reasoning_content", "") for delta in deltas) == "Hm."
