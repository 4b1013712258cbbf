# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from serverkit import ANSWER, BOS, MODEL, ReciteEngine, connect, events_of, make_app

pytestmark = pytest.mark.anyio

NUM_TOKENS = len(ANSWER.encode()) + 1  # and the end of sequence


async def post(body: dict, engine: ReciteEngine | None = None):
    async with connect(make_app(engine)) as client:
        return await client.post("/v1/completions", json=body)


async def test_answers_with_text_usage_and_reason():
    answer = (await post({"model": "recital", "prompt": "Hi", "max_tokens": 100})).json()
    assert answer["id"].startswith("cmpl-")
    assert (answer["object"], answer["model"]) == ("text_completion", MODEL)
    (choice,) = answer["choices"]
    assert choice["text"] == ANSWER
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    assert answer["usage"] == {
        "prompt_tokens": 3,  # BOS, H, i
        "completion_tokens": NUM_TOKENS,
        "total_tokens": 3 + NUM_TOKENS,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_default_is_sixteen_tokens_of_the_served_model():
    answer = (await post({"prompt": "Hi"})).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("max_tokens", range(1, NUM_TOKENS + 2))
async def test_stream_equals_whole_at_every_length(max_tokens):
    body = {"prompt": "Hi", "max_tokens": max_tokens}
    whole = (await post(body)).json()["choices"][0]
    response = await post({**body, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "no-cache" in response.headers["cache-control"]
    chunks = [event["choices"][0] for event in events_of(response.text)]
    assert "".join(chunk["text"] for chunk in chunks) == whole["text"]
    reasons = [chunk["finish_reason"] for chunk in chunks]
    assert reasons[-1] == whole["finish_reason"]
    assert reasons[:-1] == [None] * (len(reasons) - 1)


async def test_stream_ends_with_usage_when_asked():
    options = {"include_usage": True}
    response = await post({"prompt": "Hi", "stream": True, "stream_options": options})
    *chunks, last = events_of(response.text)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == (await post({"prompt": "Hi"})).json()["usage"]


async def test_stream_repeats_usage_when_asked():
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"prompt": "Hi", "stream": True, "stream_options": options}
    counts = [event["usage"]["completion_tokens"] for event in events_of((await post(body)).text)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 16)


async def test_stream_without_usage_has_no_usage_field():
    assert all(
        "usage" not in e for e in events_of((await post({"prompt": "a", "stream": True})).text)
    )


@pytest.mark.parametrize(
    ("prompt", "token_ids"),
    [
        ("Hi", [[BOS, 72, 105]]),
        (["a", "bc"], [[BOS, 97], [BOS, 98, 99]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
async def test_takes_all_shapes_of_prompt(prompt, token_ids):
    engine = ReciteEngine()
    answer = (await post({"prompt": prompt, "max_tokens": 2}, engine)).json()
    assert [list(request.prompt_token_ids) for request in engine.requests] == token_ids
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(token_ids)))
    assert answer["usage"]["prompt_tokens"] == sum(map(len, token_ids))
    assert answer["usage"]["completion_tokens"] == 2 * len(token_ids)


async def test_several_prompts_stream_interleaved_with_one_end_each():
    prompts = ["a", "b", "c"]
    body = {"prompt": prompts, "max_tokens": 100, "stream": True}
    chunks = [event["choices"][0] for event in events_of((await post(body)).text)]
    texts = {index: "".join(c["text"] for c in chunks if c["index"] == index) for index in range(3)}
    assert texts == dict.fromkeys(range(3), ANSWER)
    assert sorted(c["index"] for c in chunks if c["finish_reason"]) == [0, 1, 2]
    first_end = next(i for i, chunk in enumerate(chunks) if chunk["finish_reason"])
    assert {chunk["index"] for chunk in chunks[:first_end]} == {0, 1, 2}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", ["Hi", [72, 105]])
async def test_echo_puts_the_prompt_before_the_answer(prompt, stream):
    response = await post({"prompt": prompt, "echo": True, "max_tokens": 6, "stream": stream})
    choices = [e["choices"][0] for e in events_of(response.text)] if stream else None
    choices = choices or response.json()["choices"]
    assert "".join(choice["text"] for choice in choices) == "Hi" + ANSWER[:4]


async def test_logprobs_in_the_shape_of_completions():
    answer = (await post({"prompt": "Hi", "logprobs": 2, "max_tokens": 4})).json()
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["G", "r", "bytes:\\xc3", "bytes:\\xbc"]
    assert logprobs["token_logprobs"] == [-1.0] * 4
    assert logprobs["top_logprobs"][0] == {"!": -0.5, "G": -1.0}
    assert logprobs["text_offset"] == [0, 1, 2, 2]


async def test_streamed_logprobs_add_up_to_the_whole():
    body = {"prompt": "Hi", "logprobs": 3, "max_tokens": 100}
    whole = (await post(body)).json()["choices"][0]["logprobs"]
    parts = [
        e["choices"][0]["logprobs"] for e in events_of((await post({**body, "stream": True})).text)
    ]
    assert {name: [x for part in parts for x in part[name]] for name in whole} == whole
    assert whole["top_logprobs"][0]["?"] == -9999.0  # JSON knows no infinity


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_with_logprobs_scores_the_prompt_too(stream):
    body = {"prompt": "Hi", "echo": True, "logprobs": 1, "max_tokens": 2, "stream": stream}
    response = await post(body)
    choices = [e["choices"][0] for e in events_of(response.text)] if stream else None
    choices = choices or response.json()["choices"]
    names = ["tokens", "token_logprobs", "text_offset", "top_logprobs"]
    tokens, logprobs, offsets, tops = (
        [x for choice in choices for x in choice["logprobs"][name]] for name in names
    )
    assert tokens == ["", "H", "i", "G", "r"]  # the first is the beginning of the sequence
    assert logprobs == [None, -1.0, -1.0, -1.0, -1.0]
    assert offsets == [0, 0, 1, 2, 3]
    assert tops[:2] == [None, {"!": -0.5, "H": -1.0}]


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_of_zero_tokens_is_the_prompt_alone(stream):
    body = {"prompt": ["Hi", "Ho"], "echo": True, "logprobs": 1, "max_tokens": 0}
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    response = await post({**body, **options})
    events = events_of(response.text) if stream else [response.json()]
    choices = sorted((c for e in events for c in e["choices"]), key=lambda c: c["index"])
    assert [choice["text"] for choice in choices] == ["Hi", "Ho"]
    assert [choice["finish_reason"] for choice in choices] == ["length", "length"]
    assert [choice["logprobs"]["tokens"] for choice in choices] == [["", "H", "i"], ["", "H", "o"]]
    assert events[-1]["usage"]["completion_tokens"] == 0
    assert events[-1]["usage"]["total_tokens"] == 6


async def test_zero_tokens_without_echo_are_refused():
    assert (await post({"prompt": "Hi", "max_tokens": 0})).json()["error"]["param"] == "max_tokens"


async def test_every_sampling_field_reaches_the_engine():
    engine = ReciteEngine()
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "seed": 42,
        "max_tokens": 9,
        "min_tokens": 3,
        "stop_token_ids": [5],
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
    }
    response = await post({"prompt": "Hi", "stop": "end", **fields}, engine)
    assert response.status_code == 200
    params = engine.requests[0].params
    assert {name: getattr(params, name) for name in fields} == {**fields, "stop_token_ids": (5,)}
    assert params.stop == ("end",)


async def test_null_means_not_given():
    names = "model stream stream_options n max_tokens temperature top_p seed stop top_k min_p user"
    names += " logprobs echo logit_bias best_of suffix min_tokens stop_token_ids ignore_eos"
    engine = ReciteEngine()
    response = await post({"prompt": "Hi", **dict.fromkeys(names.split())}, engine)
    assert response.status_code == 200
    params = engine.requests[0].params
    assert (params.temperature, params.max_tokens) == (1.0, 16)
