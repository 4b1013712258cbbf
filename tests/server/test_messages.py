# SPDX-License-Identifier: Apache-2.0
"""POST /v1/messages over HTTP."""

from __future__ import annotations

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from serverkit import ANSWER, MODEL, ReciteEngine, connect, make_app
from wirecheck import events

import templatekit

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hi"}]
NUM_TOKENS = len(ANSWER.encode()) + 1
EVENT = TypeAdapter(RawMessageStreamEvent)


async def post(body: dict, engine: ReciteEngine | None = None, path: str = "/v1/messages"):
    body = {"model": MODEL, "max_tokens": 100, "messages": HELLO, **body}
    async with connect(make_app(engine)) as client:
        given = {name: value for name, value in body.items() if value is not ...}
        return await client.post(path, json=given, headers={"x-api-key": "any"})


async def streamed(body: dict, engine: ReciteEngine | None = None) -> list[dict]:
    response = await post({"stream": True, **body}, engine)
    names = [line[7:] for line in response.text.splitlines() if line.startswith("event: ")]
    found = events(response.content)
    assert names == [event["type"] for event in found]
    for event in found:
        if event["type"] not in ("ping", "error"):
            EVENT.validate_python(event)
    return found


async def test_answers_with_a_message():
    answer = (await post({})).json()
    Message.model_validate(answer)
    assert answer["id"].startswith("msg_")
    assert (answer["type"], answer["role"], answer["model"]) == ("message", "assistant", MODEL)
    assert answer["content"] == [{"type": "text", "text": ANSWER}]
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("end_turn", None)
    assert answer["usage"]["input_tokens"] == len("user: Hi\nassistant: ")
    assert answer["usage"]["output_tokens"] == NUM_TOKENS


async def test_a_stream_tells_the_same_in_events():
    whole = (await post({})).json()
    first, ping, start, *deltas, stop, end, last = await streamed({})
    assert (first["type"], ping["type"]) == ("message_start", "ping")
    assert first["message"]["content"] == []
    assert first["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert start["content_block"] == {"type": "text", "text": ""}
    assert "".join(event["delta"]["text"] for event in deltas) == ANSWER
    assert stop == {"type": "content_block_stop", "index": 0}
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"] == whole["usage"]
    assert last == {"type": "message_stop"}


async def test_an_answer_may_be_cut_off():
    answer = (await post({"max_tokens": 5})).json()
    assert answer["stop_reason"] == "max_tokens"
    assert (await streamed({"max_tokens": 5}))[-2]["delta"]["stop_reason"] == "max_tokens"


async def test_reasoning_may_be_left_out():
    def engine() -> ReciteEngine:
        engine = ReciteEngine("Hm.\n</think>\n\nYes.")
        engine.tokenizer = templatekit.TemplateTokenizer(engine.tokenizer, templatekit.THINKING)
        return engine

    kinds = [block["type"] for block in (await post({}, engine())).json()["content"]]
    assert kinds == ["thinking", "text"]
    answer = (await post({"include_reasoning": False}, engine())).json()
    assert answer["content"] == [{"type": "text", "text": "Yes."}]


async def test_blocks_become_messages():
    engine = ReciteEngine()
    body = {
        "system": [
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be kind."},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "One"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "1"}]},
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("Two", "Three")]},
        ],
    }
    await post(body, engine)
    prompt = bytes(engine.requests[0].prompt_token_ids).decode()
    assert prompt == (
        "system: Be brief.\nBe kind.\nuser: One\nassistant: 1\nuser: Two\nThree\nassistant: "
    )


async def test_settings_reach_the_engine():
    engine = ReciteEngine()
    await post({"temperature": 0.5, "top_p": 0.25, "top_k": 3, "stop_sequences": ["x"]}, engine)
    params = engine.requests[0].params
    assert (params.temperature, params.top_p, params.top_k) == (0.5, 0.25, 3)
    assert (params.stop, params.max_tokens) == (("x",), 100)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_tokens": ...}, "max_tokens"),
        ({"model": ...}, "model"),
        ({"messages": ...}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0]",
        ),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "messages[0].content[0].tool_use_id",
        ),
        (
            {"messages": [{**HELLO[0], "content": [{"type": "tool_result", "tool_use_id": ""}]}]},
            "messages[0].content[0].tool_use_id",
        ),
        ({"prompt_logprobs": 2}, "prompt_logprobs is no field"),
        ({"system": 5}, "system"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"temperature": 9}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"n": 2}, "n"),
        ({"stop": "x"}, "stop"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "thinking.budget_tokens"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"metadata": {"user_id": 5}}, "metadata.user_id"),
    ],
)
async def test_a_bad_field_is_named_in_their_shape(body, field):
    response = await post(body)
    assert response.status_code == 400, response.text
    document = response.json()
    assert document["type"] == "error"
    assert document["error"]["type"] == "invalid_request_error"
    assert field in document["error"]["message"]


async def test_every_refusal_of_these_paths_has_their_shape():
    engine = ReciteEngine()
    assert (await post({"model": "claude-9"})).json()["error"]["type"] == "not_found_error"
    engine.is_running = False
    dead = await post({}, engine)
    assert (dead.status_code, dead.json()["error"]["type"]) == (503, "overloaded_error")
    async with connect(make_app()) as client:
        response = await client.get("/v1/messages")
        assert (response.status_code, response.json()["type"]) == (405, "error")
        response = await client.get("/v1/messagesss")
        assert "type" not in response.json()


async def test_a_failure_is_a_500_and_in_a_stream_the_last_event():
    failed = await post({}, ReciteEngine(fail_after=3))
    assert (failed.status_code, failed.json()["error"]["type"]) == (500, "api_error")
    last = (await streamed({}, ReciteEngine(fail_after=3)))[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert "secret" not in str(last)


async def test_tokens_are_counted():
    path = "/v1/messages/count_tokens"
    answer = (await post({"max_tokens": ...}, path=path)).json()
    assert answer == {"input_tokens": len("user: Hi\nassistant: ")}
    long = [{"role": "user", "content": "x" * 5000}]
    assert (await post({"messages": long, "max_tokens": ...}, path=path)).status_code == 400
    refused = await post({"messages": [], "max_tokens": ...}, path=path)
    assert (refused.status_code, refused.json()["type"]) == (400, "error")
