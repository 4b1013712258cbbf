# SPDX-License-Identifier: Apache-2.0
"""POST /v1/responses over HTTP; each answer and event is also checked against its schema."""

from __future__ import annotations

import pytest
from serverkit import ANSWER, MODEL, ReciteEngine, connect, make_app
from wirecheck import events

pytestmark = pytest.mark.anyio

TOOL = {"type": "function"}
NUM_TOKENS = len(ANSWER.encode()) + 1


async def post(body: dict, engine: ReciteEngine | None = None):
    async with connect(make_app(engine)) as client:
        return await client.post("/v1/responses", json={"input": "Hi", **body})


async def streamed(body: dict, engine: ReciteEngine | None = None) -> list[dict]:
    response = await post({"stream": True, **body}, engine)
    assert response.headers["content-type"].startswith("text/event-stream")
    names = [line[7:] for line in response.text.splitlines() if line.startswith("event: ")]
    found = events(response.content)
    assert names == [event["type"] for event in found]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


async def test_answers_with_a_message():
    answer = (await post({"model": MODEL})).json()
    assert answer["id"].startswith("resp_")
    assert (answer["object"], answer["status"], answer["model"]) == ("response", "completed", MODEL)
    (item,) = answer["output"]
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    (part,) = item["content"]
    assert part == {"type": "output_text", "text": ANSWER, "annotations": [], "logprobs": []}
    usage = answer["usage"]
    assert usage["input_tokens"] == len("user: Hi\nassistant: ")
    assert usage["output_tokens"] == NUM_TOKENS
    assert usage["total_tokens"] == usage["input_tokens"] + NUM_TOKENS
    assert answer["incomplete_details"] is None


async def test_a_stream_tells_the_same_in_events():
    whole = (await post({})).json()
    found = await streamed({})
    kinds = [event["type"].removeprefix("response.") for event in found]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    deltas = [event["delta"] for event in found if event["type"].endswith("text.delta")]
    assert "".join(deltas) == ANSWER
    assert len(deltas) > 5
    last = found[-1]["response"]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    assert last["usage"] == whole["usage"]
    assert found[-2]["item"] == last["output"][0]


async def test_an_answer_that_is_cut_off_is_incomplete():
    answer = (await post({"max_output_tokens": 5})).json()
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["usage"]["output_tokens"] == 5
    assert (await streamed({"max_output_tokens": 5}))[-1]["type"] == "response.incomplete"


async def test_logprobs_belong_to_the_text():
    include = ["message.output_text.logprobs"]
    answer = (await post({"include": include, "top_logprobs": 2})).json()
    (part,) = answer["output"][0]["content"]
    assert len(part["logprobs"]) == NUM_TOKENS - 1  # what ends the answer is no text
    assert len(part["logprobs"][0]["top_logprobs"]) == 2
    found = await streamed({"include": include})
    deltas = [event for event in found if event["type"].endswith("text.delta")]
    assert sum(len(event["logprobs"]) for event in deltas) >= len(ANSWER)
    assert all(set(entry) >= {"token", "logprob"} for e in deltas for entry in e["logprobs"])


async def test_instructions_and_items_become_messages():
    engine = ReciteEngine()
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "One"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1"}]},
        {"role": "user", "content": "Two"},
    ]
    await post({"instructions": "Count.", "input": items}, engine)
    prompt = bytes(engine.requests[0].prompt_token_ids).decode()
    assert prompt == (
        "system: Count.\nsystem: Be brief.\nuser: One\nassistant: 1\nuser: Two\nassistant: "
    )


async def test_settings_reach_the_engine_and_come_back():
    engine = ReciteEngine()
    body = {
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 7,
        "stop": ["x"],
        "metadata": {"a": "b"},
        "text": {"format": {"type": "text"}},
        "truncation": "auto",
        "tool_choice": "auto",
        "tools": [],
        "store": True,
    }
    answer = (await post(body, engine)).json()
    params = engine.requests[0].params
    assert (params.temperature, params.top_p, params.seed) == (0.5, 0.25, 7)
    assert params.stop == ("x",)
    assert params.on_overflow.value == "truncate_middle"
    for name in ("temperature", "top_p", "metadata", "text", "truncation", "tools", "tool_choice"):
        assert answer[name] == body[name], name


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"),
        ({"input": [{"role": "king", "content": "Hi"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        (
            {"input": [{"type": "function_call", "name": "f", "call_id": "c"}]},
            "input[0].arguments",
        ),
        ({"instructions": 5}, "instructions"),
        ({"input": [{"role": "assistant", "content": "Hi"}]}, "messages"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": "5"}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"truncation": "some"}, "truncation"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"n": 2}, "n"),
        ({"messages": []}, "messages"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"text": {"verbosity": 5}}, "text.verbosity"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        (
            {
                "tools": [{**TOOL, "name": "a"}, {**TOOL, "name": "b", "parameters": {"type": 5}}],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"name": "b"}]},
            },
            "tools[1].parameters.type",
        ),
        ({"prompt_logprobs": 2}, "prompt_logprobs"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
    ],
)
async def test_a_bad_field_is_named_as_the_caller_spells_it(body, param):
    for stream in (False, True):
        response = await post({**body, "stream": stream})
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        if param == "messages" and "input" in body:
            param = "input"  # what the template says is about the whole input
        assert error["param"] == param


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
async def test_what_json_cannot_say_again_is_refused(number):
    for name, value in (("text", '{"format": {"type": "text", "x": @}}'), ("tool_choice", "@")):
        body = f'{{"input": "Hi", "{name}": {value}}}'.replace("@", number)
        async with connect(make_app()) as client:
            headers = {"content-type": "application/json"}
            response = await client.post("/v1/responses", content=body, headers=headers)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == name


async def test_what_the_answer_repeats_is_bounded():
    response = await post({"metadata": {"a": "x" * 300_000}})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "metadata")
    assert (await post({"metadata": {"a": "x" * 200_000}})).status_code == 200


async def test_stream_options_need_a_stream():
    response = await post({"stream_options": {}})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "stream_options")
    assert (await post({"stream_options": {}, "stream": True})).status_code == 200


async def test_an_unknown_model_and_an_earlier_answer_are_not_found():
    assert (await post({"model": "gpt-9"})).status_code == 404
    async with connect(make_app()) as client:
        response = await client.get("/v1/responses/resp_1")
    assert response.status_code == 404
    assert "not stored" in response.json()["error"]["message"]


async def test_a_failure_is_a_500_and_in_a_stream_the_last_event():
    assert (await post({}, ReciteEngine(fail_after=3))).status_code == 500
    found = await streamed({}, ReciteEngine(fail_after=3))
    last = found[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "server_error"
    assert "secret" not in str(last)
    assert [e["type"] for e in found].count("response.output_item.done") == 1
