# SPDX-License-Identifier: Apache-2.0
"""The check of every answer against the API's description notices what it should."""

from __future__ import annotations

import copy

import httpx
import pytest
from serverkit import MODEL, connect, make_app
from wirecheck import Checked, check

pytestmark = pytest.mark.anyio

CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def test_a_good_answer_has_no_faults():
    assert check("CreateChatCompletionResponse", CHAT) == []


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("created",), "now", "created"),
        (("object",), "chat", "object"),
        (("choices", 0, "finish_reason"), "done", "finish_reason"),
        (("choices", 0, "message", "content"), 5, "content"),
        (("choices", 0, "index"), None, "index"),
        (("usage", "total_tokens"), 1.5, "total_tokens"),
        (("suprise",), 1, "suprise"),
        (("choices", 0, "message", "text"), "Hi", "text"),
        (("usage", "prompt_tokens_details"), {"cached": 1}, "cached"),
    ],
)
def test_a_planted_fault_is_named(path, value, named):
    answer = copy.deepcopy(CHAT)
    place = answer
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    faults = check("CreateChatCompletionResponse", answer)
    assert faults
    assert named in faults[0]


def test_a_missing_field_is_a_fault():
    for name in ("id", "choices", "model"):
        faults = check("CreateChatCompletionResponse", {k: v for k, v in CHAT.items() if k != name})
        assert any(name in fault for fault in faults)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("completions", {"prompt": "Hi"}),
        ("chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("responses", {"input": "Hi"}),
    ],
)
async def test_every_answer_of_an_application_goes_through_it(route, body, streams):
    checked = Checked(make_app())
    transport = httpx.ASGITransport(checked)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        await client.post(f"/v1/{route}", json={**body, "stream": streams})
        assert checked.num_checked > (10 if streams else 0)
        before = checked.num_checked
        await client.post(f"/v1/{route}", json={})
        assert checked.num_checked == before + 1
    checked.assert_clean()


async def test_an_application_with_a_fault_fails_its_test():
    app = make_app(model_name=MODEL)

    async def planted(scope, receive, send):
        async def spoil(message):
            if message["type"] == "http.response.body":
                body = message["body"].replace(b'"object":"list"', b'"object":"lost"')
                message = {**message, "body": body}
            await send(message)

        await app(scope, receive, spoil)

    planted.state = app.state
    with pytest.raises(AssertionError, match="lost"):
        async with connect(planted) as client:
            await client.get("/v1/models")
