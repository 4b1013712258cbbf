# SPDX-License-Identifier: Apache-2.0
"""The sampling fields that vLLM adds to OpenAI's, on both endpoints."""

from __future__ import annotations

import pytest
from serverkit import ReciteEngine, connect, make_app

pytestmark = pytest.mark.anyio

ASKS = {
    "/v1/completions": {"prompt": "Hi"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
}
FIELDS: dict[str, object] = {
    "presence_penalty": -1.5,
    "frequency_penalty": 2,
    "repetition_penalty": 1.2,
    "logit_bias": {"104": 5, "7": -100},
    "bad_words": ["no", "never"],
    "allowed_token_ids": [104, 105, 7],
    "typical_p": 0.9,
    "top_n_sigma": 1.5,
    "logprobs_mode": "processed_logprobs",
}


async def post(path: str, body: dict, engine: ReciteEngine | None = None):
    async with connect(make_app(engine)) as client:
        return await client.post(path, json={**ASKS[path], **body})


@pytest.mark.parametrize("path", ASKS)
async def test_every_field_reaches_the_engine(path):
    engine = ReciteEngine()
    assert (await post(path, FIELDS, engine)).status_code == 200
    params = engine.requests[0].params
    kept = {
        **FIELDS,
        "logit_bias": ((7, -100.0), (104, 5.0)),
        "bad_words": ("no", "never"),
        "allowed_token_ids": (104, 105, 7),
    }
    assert {name: getattr(params, name) for name in FIELDS} == kept
    assert engine.requests[0].bad_word_ids


@pytest.mark.parametrize("path", ASKS)
async def test_null_and_idle_values_change_nothing(path):
    idle = {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1}
    idle |= {"logit_bias": {}, "bad_words": [], "typical_p": 1, "top_n_sigma": 0}
    engine = ReciteEngine()
    for body in (idle, dict.fromkeys([*FIELDS, "prompt_logprobs"]), {}):
        assert (await post(path, body, engine)).status_code == 200
    first, second, third = (request.params for request in engine.requests)
    assert first == second == third


@pytest.mark.parametrize("path", ASKS)
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"allowed_token_ids": [257, 258], "min_tokens": 1}, "allowed_token_ids"),
        ({"allowed_token_ids": [104], "bad_words": ["h"]}, "allowed_token_ids"),
        ({"stop_token_ids": [*range(259)], "min_tokens": 1}, "stop_token_ids"),
        ({"bad_words": [chr(97 + i) * 99 for i in range(20)]}, "bad_words"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"logit_bias": {"1e2": 1}}, "logit_bias"),
    ],
)
async def test_what_cannot_work_names_its_field(path, body, param):
    response = await post(path, body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_prompt_logprobs_stand_in_the_choice_of_a_completion():
    body = {"prompt": ["Hi", "Ho"], "prompt_logprobs": 2}
    answer = (await post("/v1/completions", body)).json()
    assert "prompt_logprobs" not in answer
    first, second = (choice["prompt_logprobs"] for choice in answer["choices"])
    assert first[0] is None
    assert first[1] == {
        str(ord("H")): {"logprob": -1.0, "rank": 2, "decoded_token": None},
        "33": {"logprob": -0.5, "rank": 1, "decoded_token": None},
    }
    assert [*second[2]] == [str(ord("o")), "33"]
    assert len(first) == len(second) == 3


async def test_prompt_logprobs_stand_beside_the_choices_of_a_chat():
    answer = (await post("/v1/chat/completions", {"prompt_logprobs": 0})).json()
    rendered = "user: Hi\nassistant: "
    assert answer["prompt_logprobs"][0] is None
    entries = [[*entry] for entry in answer["prompt_logprobs"][1:]]
    assert entries == [[str(ord(char))] for char in rendered[1:]]
    assert all("prompt_logprobs" not in choice for choice in answer["choices"])


async def test_echo_keeps_its_own_count_of_alternatives():
    body = {"echo": True, "logprobs": 1, "prompt_logprobs": 3, "max_tokens": 1}
    (choice,) = (await post("/v1/completions", body)).json()["choices"]
    assert choice["logprobs"]["top_logprobs"][1] == {"!": -0.5, "H": -1.0}
    assert choice["prompt_logprobs"][1]["63"]["logprob"] == -9999.0  # JSON knows no infinity
    body |= {"logprobs": 0, "prompt_logprobs": None}
    (choice,) = (await post("/v1/completions", body)).json()["choices"]
    assert choice["logprobs"]["top_logprobs"][1] == {"H": -1.0}
    assert "prompt_logprobs" not in choice
