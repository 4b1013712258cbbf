# SPDX-License-Identifier: Apache-2.0
"""Whatever a client sends, the answer is a success or a plain refusal, and nothing is left behind.

Bodies are made from good ones: fields replaced, removed, nested and added, by names that the
application's own description knows. The engine is real; its executor checks every plan.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serverkit import running, wait_until
from test_real_engine import Server

from octavo.server.openai.sampling import HARMLESS, UNSUPPORTED

EXAMPLES = 600  # some ten seconds
HELLO = [{"role": "user", "content": "Hi"}]
GOOD: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Hi", "max_tokens": 3, "temperature": 0},
    "/v1/chat/completions": {"messages": HELLO, "max_tokens": 3, "stop": ["x"]},
    "/v1/responses": {"input": HELLO, "max_output_tokens": 3, "text": {"format": {"type": "text"}}},
    "/v1/messages": {"model": "echo", "messages": HELLO, "max_tokens": 3, "system": "Be brief."},
    "/v1/messages/count_tokens": {"model": "echo", "messages": HELLO},
    "/tokenize": {"prompt": "Hi"},
    "/detokenize": {"tokens": [5, 6]},
    "/apply-template": {"messages": HELLO},
}
ODD = [None, True, 0, -1, 3, 2**31, 2**63, 10**400, 1.5, 1e308, "", "x", "\x00", "\ud800", [], {}]


def values() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(ODD) | st.text(max_size=5) | st.integers() | st.floats(-5, 5)
    pieces = st.sampled_from(
        [
            *HELLO,
            {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
            {"role": "tool", "tool_call_id": "c", "content": "x"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            {"type": "tool_result", "tool_use_id": "c", "content": "x"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"},
            {"type": "function_call_output", "call_id": "c", "output": []},
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
            {"type": "function", "name": "f", "parameters": {"$ref": "#"}},
            {"name": "f", "input_schema": {"type": "array"}},
            {"type": "json_schema", "schema": {"type": "nothing"}},
            {"type": "enabled", "budget_tokens": 1024},
        ]
    )
    return st.recursive(
        leaves | pieces,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
        ),
        max_leaves=6,
    )


NAMES = sorted(
    {"role", "content", "type", "text", "name", "input", "format", "effort", "arguments"}
    | set(HARMLESS)
    | set(UNSUPPORTED)
)


@st.composite
def bodies(draw: st.DrawFn, names: list[str]) -> tuple[str, dict[str, Any]]:
    """An endpoint and a body with one to three changes in random places."""
    path = draw(st.sampled_from(sorted(GOOD)))
    body = copy.deepcopy(GOOD[path])
    for _ in range(draw(st.integers(1, 3))):
        spoil(draw, body, names)
    return path, body


def spoil(draw: st.DrawFn, body: dict[str, Any], names: list[str]) -> None:
    place: Any = body
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        match draw(st.sampled_from(["descend", "replace", "remove", "add"])):
            case "descend":
                place = place[key]
                continue
            case "replace":
                place[key] = copy.deepcopy(draw(values()))
            case "remove":
                del place[key]
            case "add" if isinstance(place, dict):
                place[draw(st.sampled_from(names))] = copy.deepcopy(draw(values()))
        return


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    try:
        with running(server.app, drain_s=0.5) as server.url:
            yield server
    finally:
        server.engine.shutdown()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        yield client


@pytest.fixture(scope="module")
def names(client: httpx.Client) -> list[str]:
    """Every field that the application describes."""
    document = client.get("/openapi.json").json()
    described = document["components"]["schemas"].values()
    found = {name for schema in described for name in schema.get("properties", ())}
    assert {"max_tokens", "input", "system", "tokens"} <= found
    return sorted(found | set(NAMES))


def check_refusal(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert response.json()["error"]["message"]


def check_at_rest(server: Server, client: httpx.Client) -> None:
    """A canary still sings, every request has ended, and every block is free or cached."""
    answer = client.post("/v1/completions", json={"prompt": "canary", "max_tokens": 2})
    assert answer.status_code == 200

    def is_idle() -> bool:
        stats = server.engine.stats()
        return stats.num_used_blocks == 0 and stats.num_running + stats.num_waiting == 0

    wait_until(is_idle)
    assert server.app.state.lifecycle.num_live == 0


@pytest.mark.parametrize(("status", "body"), [(500, {"error": {"message": "x"}}), (400, {})])
def test_a_planted_failure_is_noticed(status, body):
    with pytest.raises((AssertionError, KeyError)):
        check_refusal(httpx.Response(status, json=body))


def test_every_post_route_is_thrown_at(client: httpx.Client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {path for path, methods in paths.items() if "post" in methods} == GOOD.keys()


def test_the_good_bodies_are_good(client: httpx.Client):
    for path, body in GOOD.items():
        assert client.post(path, json=body).status_code == 200, path


def test_spoilt_bodies_are_refused_or_answered(server: Server, client: httpx.Client, names):
    statuses: dict[int, int] = {}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies(names))
    def throw(thrown: tuple[str, dict[str, Any]]) -> None:
        path, body = thrown
        response = client.post(
            path, content=json.dumps(body), headers={"content-type": "application/json"}
        )
        check_refusal(response)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1

    throw()
    check_at_rest(server, client)
    assert statuses[200] > EXAMPLES / 20, statuses  # else nothing ever got as far as the engine
    assert statuses[400] > EXAMPLES / 5, statuses


@pytest.mark.parametrize("path", sorted(GOOD))
def test_bytes_that_are_no_json_are_refused(server: Server, client: httpx.Client, path: str):
    headers = {"content-type": "application/json"}
    good = json.dumps(GOOD[path]).encode()
    spoilt = [good[:cut] for cut in range(0, len(good), 7)]
    spoilt += [b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe{}", b"NaN", good + good]
    spoilt += [good.replace(b"{", b'{"model": NaN, ', 1) for _ in "x" if b'"model"' not in good]
    spoilt += [b"1" * 10_000, b'["x"]', b'"x"', b"1e999", b"null", b""]
    for content in spoilt:
        response = client.post(path, content=content, headers=headers)
        check_refusal(response)
        assert response.status_code == 400, content[:50]
    check_at_rest(server, client)


def test_other_types_methods_and_paths_are_refused(server: Server, client: httpx.Client):
    for path in GOOD:
        assert client.post(path, content=b"{}").status_code == 415
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            assert client.request(method, path).status_code == 405
        assert client.get(f"{path}/..%2f%00").status_code in (404, 405)
    check_at_rest(server, client)
