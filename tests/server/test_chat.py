# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest
from serverkit import (
    ANSWER,
    MAX_MODEL_LEN,
    MODEL,
    ByteTokenizer,
    ReciteEngine,
    connect,
    events_of,
    make_app,
)

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hi"}]
RENDERED = "user: Hi\nassistant: "


async def post(body: dict, engine: ReciteEngine | None = None):
    async with connect(make_app(engine)) as client:
        return await client.post("/v1/chat/completions", json={"messages": HELLO, **body})


async def test_answers_with_a_message():
    answer = (await post({"model": MODEL})).json()
    assert answer["id"].startswith("chatcmpl-")
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": ANSWER, "refusal": None}
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    num_tokens = len(ANSWER.encode()) + 1
    assert answer["usage"]["completion_tokens"] == num_tokens
    assert answer["usage"]["prompt_tokens"] == len(RENDERED)
    assert answer["usage"]["total_tokens"] == len(RENDERED) + num_tokens


async def test_the_template_alone_writes_special_tokens():
    engine = ReciteEngine()
    await post({}, engine)
    assert list(engine.requests[0].prompt_token_ids) == list(RENDERED.encode())
    assert engine.requests[0].prompt == RENDERED


async def test_default_budget_is_the_rest_of_the_context():
    engine = ReciteEngine()
    await post({}, engine)
    assert engine.requests[0].max_tokens == MAX_MODEL_LEN - len(RENDERED)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_budget_by_either_name(name):
    answer = (await post({name: 3})).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3


async def test_stream_is_role_then_text_then_one_end():
    response = await post({"stream": True, "stream_options": {"include_usage": True}})
    *chunks, usage = events_of(response.text)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in choice["delta"] for choice in choices[1:])
    assert "".join(choice["delta"].get("content", "") for choice in choices) == ANSWER
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert usage["usage"] == (await post({})).json()["usage"]


@pytest.mark.parametrize("num_top", [0, 2])
async def test_logprobs_in_the_shape_of_chat(num_top):
    body = {"logprobs": True, "top_logprobs": num_top, "max_tokens": 3}
    content = (await post(body)).json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["G", "r", "bytes:\\xc3"]
    assert content[2]["bytes"] == [0xC3]
    assert content[0]["logprob"] == -1.0
    top = [(entry["token"], entry["logprob"]) for entry in content[0]["top_logprobs"]]
    assert top == [("!", -0.5), ("G", -1.0)][:num_top]


async def test_streamed_logprobs_add_up_to_the_whole():
    body = {"logprobs": True, "top_logprobs": 3, "max_tokens": 100}
    whole = (await post(body)).json()["choices"][0]["logprobs"]["content"]
    events = events_of((await post({**body, "stream": True})).text)
    parts = [event["choices"][0]["logprobs"] for event in events]
    assert [entry for part in parts if part for entry in part["content"]] == whole


class WatchedTokenizer(ByteTokenizer):
    """Knows in which threads tokens were spelt."""

    def __init__(self) -> None:
        self.thread_ids: set[int] = set()

    def token_bytes(self, token_id: int) -> bytes:
        self.thread_ids.add(threading.get_ident())
        return super().token_bytes(token_id)


async def test_a_whole_answer_is_not_spelt_in_the_event_loop():
    engine = ReciteEngine()
    engine.tokenizer = tokenizer = WatchedTokenizer()
    body = {"logprobs": True, "top_logprobs": 3, "prompt_logprobs": 3}
    assert (await post(body, engine)).status_code == 200
    assert tokenizer.thread_ids
    assert threading.get_ident() not in tokenizer.thread_ids


async def test_text_parts_are_joined_and_names_kept():
    engine = ReciteEngine()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d", "name": "Eve"},
    ]
    assert (await post({"messages": messages}, engine)).status_code == 200
    assert engine.requests[0].prompt == "system: s\nuser: a\nb\nassistant: c\nuser: d\nassistant: "


async def test_developer_is_the_newer_word_for_system():
    engine = ReciteEngine()
    await post({"messages": [{"role": "developer", "content": "s"}, *HELLO]}, engine)
    assert engine.requests[0].prompt.startswith("system: s\n")


async def test_generation_prompt_may_be_left_out():
    engine = ReciteEngine()
    await post({"add_generation_prompt": False}, engine)
    assert engine.requests[0].prompt == "user: Hi\n"


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("Hi", "messages"),
        ([{"role": "user"}], "messages[0].content"),
        ([*HELLO, {"role": "user", "content": 5}], "messages[1].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": ["a"]}], "messages[0].content[0]"),
        ([{"role": "robot", "content": "a"}], "messages[0].role"),
        ([{"content": "a"}], "messages[0].role"),
        ([{"role": "assistant", "content": "refused by the template"}], "messages"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0].type",
        ),
    ],
)
async def test_names_the_message_that_it_cannot_take(messages, param):
    response = await post({"messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 1}, "logprobs"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"n": 17}, "n"),
    ],
)
async def test_names_the_field_in_the_words_of_chat(body, param):
    error = (await post(body)).json()["error"]
    assert error["param"] == param
    assert param.split(".")[0] in error["message"]
