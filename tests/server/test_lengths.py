# SPDX-License-Identifier: Apache-2.0
"""Answers that cannot be as long as asked for: refused, unless the request asks for cuts."""

from __future__ import annotations

import pytest
from serverkit import MAX_MODEL_LEN, MODEL, ReciteEngine, connect, make_app

CASES = [
    ("/v1/completions", {"prompt": "Hi"}, "max_tokens"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, "max_tokens"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}]},
        "max_completion_tokens",
    ),
]
pytestmark = pytest.mark.anyio


async def post(path: str, body: dict[str, object], engine: ReciteEngine | None = None):
    async with connect(make_app(engine)) as client:
        return await client.post(path, json=body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "field"), CASES)
async def test_more_than_there_is_room_for_is_refused(path, body, field, stream):
    reply = await post(path, {**body, field: MAX_MODEL_LEN, "stream": stream})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, field)
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith(f"{field} ({MAX_MODEL_LEN}) is above the ")


@pytest.mark.parametrize(("path", "body", "field"), CASES)
async def test_cuts_that_were_asked_for_are_made(path, body, field):
    engine = ReciteEngine()
    asked = {**body, field: MAX_MODEL_LEN, "on_overflow": "truncate_left"}
    assert (await post(path, asked, engine)).status_code == 200
    (request,) = engine.requests
    assert request.max_tokens == MAX_MODEL_LEN - len(request.prompt_token_ids)


@pytest.mark.parametrize("left", [5, 16])
async def test_the_default_length_is_nobodys_wish_and_is_cut(left):
    engine = ReciteEngine()
    body: dict[str, object] = {"prompt": [1] * (MAX_MODEL_LEN - left)}
    assert (await post("/v1/completions", body, engine)).status_code == 200
    assert engine.requests[0].max_tokens == left


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_was_cut_is_flagged_in_the_head(stream):
    body = {"prompt": [1] * MAX_MODEL_LEN, "max_tokens": 4, "stream": stream}
    reply = await post("/v1/completions", {**body, "on_overflow": "truncate_middle"})
    assert reply.headers["x-truncated-tokens"] == "4"
    whole = await post("/v1/completions", {"prompt": "Hi", "stream": stream})
    assert "x-truncated-tokens" not in whole.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_and_on_the_paths_with_usage_of_another_shape(stream):
    text = "x" * (MAX_MODEL_LEN - len("user: \nassistant: "))  # no room for an answer
    message = {"model": MODEL, "messages": [{"role": "user", "content": text}]}
    asked = {**message, "max_tokens": 4, "on_overflow": "truncate_left", "stream": stream}
    reply = await post("/v1/messages", asked)
    assert reply.headers["x-truncated-tokens"] == "4"
    asked = {"input": text, "max_output_tokens": 4, "truncation": "auto", "stream": stream}
    reply = await post("/v1/responses", asked)
    assert reply.headers["x-truncated-tokens"] == "4"
    whole = await post("/v1/responses", {"input": "Hi", "stream": stream})
    assert "x-truncated-tokens" not in whole.headers
