# SPDX-License-Identifier: Apache-2.0
"""Everything that goes wrong has one shape, a fitting status, and words for a person."""

from __future__ import annotations

import logging

import pytest
from serverkit import MAX_MODEL_LEN, ReciteEngine, connect, events_of, make_app

from octavo.server.openai.sampling import HARMLESS, UNSUPPORTED
from octavo.server.openai.schemas import ChatRequest

pytestmark = pytest.mark.anyio

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


async def request(method: str, path: str, *, engine: ReciteEngine | None = None, **options):
    async with connect(make_app(engine, max_body_bytes=8192)) as client:
        response = await client.request(method, path, **options)
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return response.status_code, error


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, 2]", b'{"prompt": "\\ud800"}', b"\xff", b"null", b'{"a": ' * 300, b'"text"'],
)
async def test_malformed_json_is_a_400(path, content):
    status, error = await request("POST", path, content=content, headers=JSON)
    assert (status, error["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "warm"),
        ("temperature", 3),
        ("temperature", -1),
        ("top_p", 0),
        ("top_p", "0.5"),
        ("top_k", 1.5),
        ("max_tokens", "5"),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("max_tokens", 10**30),
        ("seed", -5),
        ("seed", 2**70),
        ("n", 0),
        ("n", 17),
        ("best_of", 0),
        ("on_overflow", "shrug"),
        ("timeout_s", 0),
        ("queue_timeout_s", "soon"),
        ("stop", 5),
        ("stop", [1]),
        ("stop", ""),
        ("stop", {"a": 1}),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", [999999]),
        ("stop_token_ids", 5),
        ("stream", "yes"),
        ("stream", 1),
        ("stream_options", []),
        ("logprobs", 21),
        ("logprobs", -1),
        ("min_tokens", 17),
        ("min_p", 1.1),
        ("ignore_eos", 0),
        ("model", 5),
        ("prompt", None),
        ("prompt", {}),
        ("prompt", []),
        ("prompt", 5),
        ("prompt", [999999]),
        ("prompt", [-1]),
        ("prompt", ["a"] * 1025),
        ("echo", "x"),
        ("presence_penalty", 3),
        ("frequency_penalty", "0"),
        ("repetition_penalty", 0),
        ("logit_bias", {"5": 101}),
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {"x": 1}),
        ("logit_bias", [5]),
        ("bad_words", "word"),
        ("bad_words", [""]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [999999]),
        ("typical_p", 0),
        ("top_n_sigma", -2),
        ("logprobs_mode", "raw_logits"),
        ("prompt_logprobs", 21),
        ("prompt_logprobs", -1),
    ],
)
async def test_names_the_field_that_is_wrong(field, value):
    status, error = await request("POST", COMPLETIONS, json={"prompt": "Hi", field: value})
    assert (status, error["param"]) == (400, field)
    assert field.split("[")[0] in error["message"] or "token id" in error["message"]


@pytest.mark.parametrize(
    ("prompt", "param"),
    [(["a", 1], "prompt[1]"), ([[1], "a"], "prompt[1]"), ([[1], [2, "b"]], "prompt[1][1]")],
)
async def test_names_the_place_in_a_mixed_prompt(prompt, param):
    _, error = await request("POST", COMPLETIONS, json={"prompt": prompt})
    assert error["param"] == param


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 4000])
async def test_numbers_that_are_none(number):
    content = b'{"prompt": "Hi", "temperature": %s}' % number.encode()
    status, error = await request("POST", COMPLETIONS, content=content, headers=JSON)
    assert (status, error["param"]) == (400, "temperature")


async def test_says_what_it_got_and_what_it_takes():
    body = {"prompt": "Hi", "temperature": "warm", "top_k": []}
    _, error = await request("POST", COMPLETIONS, json=body)
    message = "temperature should be a valid number, got warm; "
    assert error["message"] == message + "top_k should be a valid integer, got an array of 0"
    _, error = await request("POST", COMPLETIONS, json={})
    assert error["message"] == "prompt is required"
    _, error = await request("POST", COMPLETIONS, json={"prompt": "Hi", "temperature": 3})
    assert error["message"] == "temperature must be in [0.0, 2.0], got 3.0"


async def test_long_values_are_not_repeated_back():
    _, error = await request("POST", COMPLETIONS, json={"prompt": "", "seed": "x\n" * 1000})
    assert len(error["message"]) < 200


async def test_prompt_that_never_fits_is_refused_with_the_numbers():
    prompt = [1] * MAX_MODEL_LEN
    async with connect(make_app()) as client:
        response = await client.post(COMPLETIONS, json={"prompt": prompt, "stream": True})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert str(MAX_MODEL_LEN) in error["message"]


async def test_one_bad_prompt_refuses_all_before_any_runs():
    engine = ReciteEngine()
    body = {"prompt": [[1], [999999]]}
    status, _ = await request("POST", COMPLETIONS, engine=engine, json=body)
    assert (status, engine.requests) == (400, [])


SAMPLES = {
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "required",
    "logit_bias": {"5": 1},
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "repetition_penalty": 1.1,
    "suffix": "tail",
}


REFUSED = [
    *((COMPLETIONS, field) for field in sorted(UNSUPPORTED)),
    *((CHAT, field) for field in sorted(UNSUPPORTED.keys() - ChatRequest.model_fields.keys())),
]


@pytest.mark.parametrize(("path", "field"), REFUSED)
async def test_refuses_what_it_cannot_do_yet(path, field):
    body = {"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    status, error = await request("POST", path, json={**body, field: SAMPLES.get(field, "x")})
    assert (status, error["param"]) == (400, field)
    assert "not supported" in error["message"]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_takes_what_asks_for_nothing(path):
    body = {"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    idle = {
        "logit_bias": {},
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "response_format": {"type": "text"},
        "tool_choice": "auto",
        "best_of": 1,
        "suffix": None,
        "priority": 0,
        "service_tier": "auto",
        "metadata": {"a": "b"},
    }
    async with connect(make_app()) as client:
        response = await client.post(path, json={**body, **idle, **dict.fromkeys(UNSUPPORTED)})
    assert response.status_code == 200


async def test_unknown_fields_are_ignored_and_logged_once(caplog):
    body = {"prompt": "Hi", "zeal": 1, "user": "me"}
    with caplog.at_level(logging.WARNING, "octavo"):
        async with connect(make_app()) as client:
            for _ in range(3):
                assert (await client.post(COMPLETIONS, json=body)).status_code == 200
    warnings = [record.getMessage() for record in caplog.records]
    assert warnings == ["ignored a request field that octavo does not know: zeal"]
    assert "zeal" not in HARMLESS | UNSUPPORTED.keys()


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_unknown_model_is_a_404(path):
    body = {"model": "gpt-9", "prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    status, error = await request("POST", path, json=body)
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "gpt-9" in error["message"]


async def test_unknown_route_and_wrong_method():
    status, error = await request("GET", "/v1/nothing")
    assert status == 404
    assert "GET /v1/nothing" in error["message"]
    status, error = await request("GET", COMPLETIONS)
    assert status == 405
    assert "POST" in error["message"]


async def test_body_must_be_json_and_of_bounded_size():
    status, error = await request("POST", COMPLETIONS, content=b"{}")
    assert (status, error["code"]) == (415, "unsupported_media_type")
    status, error = await request("POST", COMPLETIONS, content=b" " * 8193, headers=JSON)
    assert (status, error["code"]) == (413, "body_too_large")
    assert "8192" in error["message"]


async def test_stopped_engine_is_a_503():
    engine = ReciteEngine()
    engine.is_running = False
    status, error = await request("POST", COMPLETIONS, engine=engine, json={"prompt": "Hi"})
    assert (status, error["code"]) == (503, "engine_unavailable")


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_failure_in_the_engine_shows_nothing_of_the_inside(path, caplog):
    body = {"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    engine = ReciteEngine(fail_after=3)
    status, error = await request("POST", path, engine=engine, json=body)
    assert (status, error["type"]) == (500, "server_error")
    assert "secret" not in str(error)
    assert "secret" in caplog.text  # the operator does learn it


async def test_failure_in_a_stream_is_an_event():
    async with connect(make_app(ReciteEngine(fail_after=3))) as client:
        response = await client.post(COMPLETIONS, json={"prompt": "Hi", "stream": True})
    *chunks, last = events_of(response.text)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None]
    assert last["error"]["type"] == "server_error"
    assert "secret" not in response.text


async def test_failure_of_one_prompt_ends_the_others(caplog):
    engine = ReciteEngine(fail_after=3)
    status, _ = await request("POST", COMPLETIONS, engine=engine, json={"prompt": ["a", "b", "c"]})
    assert status == 500
    assert engine.live == {}


@pytest.mark.parametrize(("max_tokens", "reason"), [(3, "length"), (100, "stop")])
async def test_log_has_one_line_per_request_with_its_end(caplog, max_tokens, reason):
    with caplog.at_level(logging.INFO, "octavo"):
        async with connect(make_app()) as client:
            body = {"prompt": ["Hi", "Ho"], "max_tokens": max_tokens}
            await client.post(COMPLETIONS, json=body, headers={"x-request-id": "mine"})
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("octavo")]
    assert line.startswith(f"mine: POST {COMPLETIONS}, status 200, {reason}, 6 prompt + ")


class Broken(ReciteEngine):
    def stats(self):
        raise RuntimeError("secret")


async def test_bug_is_a_500_without_its_traceback(caplog):
    status, error = await request("GET", "/metrics", engine=Broken())
    assert (status, error["type"]) == (500, "server_error")
    assert "secret" not in str(error)
    assert "RuntimeError: secret" in caplog.text
