# SPDX-License-Identifier: Apache-2.0
"""POST /tokenize, /detokenize and /apply-template."""

from __future__ import annotations

import pytest
from serverkit import BOS, EOS, MAX_MODEL_LEN, connect, make_app

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hi"}]
RENDERED = "user: Hi\nassistant: "


async def post(path: str, **body: object):
    async with connect(make_app()) as client:
        return await client.post(path, json=body)


async def test_a_prompt_becomes_ids():
    answer = (await post("/tokenize", prompt="hé")).json()
    assert answer == {
        "count": 4,
        "max_model_len": MAX_MODEL_LEN,
        "tokens": [BOS, *"hé".encode()],
        "token_strs": None,
    }
    answer = await post("/tokenize", prompt="hi", add_special_tokens=False, return_token_strs=True)
    assert answer.json()["token_strs"] == ["h", "i"]


async def test_a_conversation_becomes_ids():
    answer = (await post("/tokenize", messages=HELLO)).json()
    assert answer["tokens"] == list(RENDERED.encode())
    answer = (await post("/tokenize", messages=HELLO, add_generation_prompt=False)).json()
    assert answer["tokens"] == list(b"user: Hi\n")


async def test_llama_cpp_is_answered_in_its_own_shape():
    assert (await post("/tokenize", content="hi")).json() == {"tokens": list(b"hi")}
    answer = (await post("/tokenize", content="hi", add_special=True)).json()
    assert answer == {"tokens": [BOS, *b"hi"]}
    answer = (await post("/tokenize", content="é", with_pieces=True)).json()
    assert answer == {"tokens": [{"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]}


async def test_ids_become_text():
    answer = (await post("/detokenize", tokens=[*"Grüße".encode()])).json()
    assert answer == {"prompt": "Grüße", "content": "Grüße"}
    assert (await post("/detokenize", tokens=[])).json()["prompt"] == ""


async def test_a_template_is_applied():
    answer = (await post("/apply-template", messages=HELLO)).json()
    assert answer == {"prompt": RENDERED}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "messages"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "x" * 5000}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "king"}]}, "messages[0].role"),
        ("/tokenize", {"content": "a", "parse_special": False}, "parse_special"),
        ("/tokenize", {"prompt": "a", "return_token_strs": "yes"}, "return_token_strs"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [1, "a"]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [EOS + 1]}, "tokens[0]"),
        ("/apply-template", {"messages": []}, "messages"),
        ("/apply-template", {"prompt": "a"}, "messages"),
    ],
)
async def test_a_bad_field_is_named(path, body, param):
    response = await post(path, **body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/apply-template"])
async def test_another_model_is_not_found(path):
    body = {"prompt": "a", "tokens": [1], "messages": HELLO, "model": "other"}
    if path == "/tokenize":
        del body["messages"]
    assert (await post(path, **body)).status_code == 404
