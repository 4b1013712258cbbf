# SPDX-License-Identifier: Apache-2.0
"""Who gets in, over every route there is."""

from __future__ import annotations

import httpx
import pytest
from serverkit import ANSWER, ReciteEngine, connect, make_app

from octavo.server.api_keys import METRICS, PROBES
from octavo.server.config import ServerConfig
from octavo.server.keys import Keyring
from octavo.server.operations import Operations

pytestmark = pytest.mark.anyio

KEY = "sk-Zebra-0123456789"
BODY = {"prompt": "Hi", "max_tokens": 100, "user": "the body's own idea"}
COMPLETIONS = "/v1/completions"


def guarded(engine: ReciteEngine | None = None, **config: object):
    keyring = Keyring.collect([KEY, "sk-other"])
    around = Operations(config=ServerConfig(**config), keyring=keyring)
    return make_app(engine, debug_routes=True, around=around)


def every_route() -> list[tuple[str, str]]:
    found = []
    for route in guarded().routes:
        path = (
            route.path.replace("{name:path}", "x").replace("{number}", "1").replace("{name}", "x")
        )
        found += [(method, path) for method in sorted(route.methods - {"HEAD"})]
    return found


@pytest.mark.parametrize(("method", "path"), every_route())
async def test_every_route_but_the_listed_wants_a_key(method, path):
    async with connect(guarded()) as client:
        response = await client.request(method, path)
        if path in PROBES | {METRICS}:
            assert response.status_code == 200
            return
        assert response.status_code == 401
        error = response.json()["error"]
        assert "wants an API key" in error["message"]
        is_anthropic = path.startswith("/v1/messages")
        kind = "authentication_error" if is_anthropic else "invalid_request_error"
        assert error["type"] == kind
        assert is_anthropic or error["code"] == "invalid_api_key"
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["x-request-id"]


async def test_the_list_of_routes_is_the_real_one():
    paths = {path for _, path in every_route()}
    assert {COMPLETIONS, "/v1/chat/completions", "/metrics", "/docs", "/debug/blocks"} <= paths
    assert len(paths - PROBES) > 12


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {KEY}"},
        {"authorization": f"bearer  {KEY}"},
        {"x-api-key": KEY},
        {"x-api-key": "sk-other"},
        {"authorization": "Bearer wrong", "x-api-key": KEY},
    ],
)
async def test_a_key_lets_in_by_either_header(headers):
    async with connect(guarded()) as client:
        response = await client.post(COMPLETIONS, json=BODY, headers=headers)
    assert response.json()["choices"][0]["text"] == ANSWER


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": KEY},
        {"authorization": f"Basic {KEY}"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Bearer {KEY[:-1]}"},
        {"x-api-key": KEY.lower()},
        {"x-api-key": ""},
        {"x-api-key": "\xe4" * 100},
        {"cookie": f"api_key={KEY}"},
    ],
)
async def test_nothing_else_does(headers):
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    engine = ReciteEngine()
    async with connect(guarded(engine)) as client:
        response = await client.post(COMPLETIONS, json=BODY, headers=httpx.Headers(raw))
    assert response.status_code == 401
    assert engine.requests == []
    assert KEY not in response.text


async def test_a_key_in_the_url_does_not_count():
    async with connect(guarded()) as client:
        assert (await client.get(f"/v1/models?api_key={KEY}&key={KEY}")).status_code == 401


@pytest.mark.parametrize("path", ["//metrics", "/metrics/", "/Health", "/health/../v1/models"])
async def test_a_path_that_looks_open_is_not(path):
    async with connect(guarded()) as client:
        request = client.build_request("GET", "http://octavo/")
        request.url = request.url.copy_with(raw_path=path.encode())
        assert (await client.send(request)).status_code == 401


async def test_metrics_can_be_guarded_too():
    async with connect(guarded(guard_metrics=True)) as client:
        assert (await client.get("/metrics")).status_code == 401
        headers = {"x-api-key": KEY}
        assert (await client.get("/metrics", headers=headers)).status_code == 200
        assert (await client.get("/health")).status_code == 200


async def test_the_key_is_the_user_whatever_the_body_says():
    engine = ReciteEngine()
    async with connect(guarded(engine)) as client:
        await client.post(COMPLETIONS, json=BODY, headers={"x-api-key": "sk-other"})
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        headers = {"x-api-key": KEY}
        await client.post("/v1/chat/completions", json=chat, headers=headers)
    assert [request.user for request in engine.requests] == ["key-2", "key-1"]


async def test_without_keys_the_body_says_who_it_is():
    engine = ReciteEngine()
    async with connect(make_app(engine)) as client:
        await client.post(COMPLETIONS, json=BODY)
    assert [request.user for request in engine.requests] == ["the body's own idea"]


async def test_websockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message)

    app = guarded()
    await app({"type": "websocket", "path": "/health", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
