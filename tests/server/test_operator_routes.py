# SPDX-License-Identifier: Apache-2.0
"""Health, version, models, request ids and /docs."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace

import pytest
from serverkit import MAX_MODEL_LEN, MODEL, ByteTokenizer, ReciteEngine, connect, make_app

pytestmark = pytest.mark.anyio


async def get(path: str, engine: ReciteEngine | None = None, **headers: str):
    async with connect(make_app(engine)) as client:
        return await client.get(path, headers=headers)


async def test_health_is_an_empty_200_while_requests_are_taken():
    response = await get("/health")
    assert (response.status_code, response.content) == (200, b"")


async def test_health_is_503_when_the_engine_is_dead():
    engine = ReciteEngine()
    engine.is_running = False
    assert (await get("/health", engine)).status_code == 503


class StuckEngine(ReciteEngine):
    def stats(self):
        return replace(super().stats(), is_stuck=True, no_progress_s=61.0)


async def test_liveness_fails_only_where_waiting_cannot_help():
    response = await get("/health/live")
    assert (response.status_code, response.content) == (200, b"")
    stuck = await get("/health/live", StuckEngine())
    assert (stuck.status_code, "61 seconds" in stuck.text) == (503, True)
    dead = ReciteEngine()
    dead.is_running = False
    assert (await get("/health/live", dead)).status_code == 503


class SlowTokenizer(ByteTokenizer):
    """Takes as long as it takes others to be served."""

    def __init__(self) -> None:
        self.others_served = threading.Event()

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert self.others_served.wait(10)
        return super().encode(text)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_long_prompt_keeps_nobody_waiting(path):
    engine = ReciteEngine()
    engine.tokenizer = SlowTokenizer()
    body = {"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}]}
    async with connect(make_app(engine)) as client:
        slow = asyncio.create_task(client.post(path, json=body))
        await asyncio.sleep(0)
        assert (await client.get("/health")).status_code == 200
        assert not slow.done()
        engine.tokenizer.others_served.set()
        assert (await slow).status_code == 200


async def test_version():
    assert (await get("/version")).json() == {"version": "1.2.3"}


async def test_models_are_the_name_and_its_aliases():
    answer = (await get("/v1/models")).json()
    assert answer["object"] == "list"
    assert [card["id"] for card in answer["data"]] == [MODEL, "recital"]
    assert all(card["max_model_len"] == MAX_MODEL_LEN for card in answer["data"])
    assert (await get(f"/v1/models/{MODEL}")).json() == answer["data"][0]
    assert (await get("/v1/models/other")).status_code == 404


async def test_request_id_is_taken_and_returned():
    async with connect(make_app()) as client:
        headers = {"x-request-id": "abc-1"}
        for path in ("/v1/completions", "/v1/completions"):  # twice: ids need not be unique
            response = await client.post(path, json={"prompt": "Hi"}, headers=headers)
            assert response.headers["x-request-id"] == "abc-1"
            assert response.json()["id"] == "cmpl-abc-1"


@pytest.mark.parametrize("hostile", ["", "a b", "x" * 200, "<script>"])
async def test_unfit_request_id_is_replaced(hostile):
    response = await get("/version", **{"x-request-id": hostile})
    assert response.headers["x-request-id"] not in ("", hostile)


async def test_errors_carry_a_request_id_too():
    assert (await get("/nothing", **{"x-request-id": "e1"})).headers["x-request-id"] == "e1"


async def test_openapi_document_resolves_its_references():
    text = (await get("/openapi.json")).text
    document = json.loads(text)
    schemas = document["components"]["schemas"]
    assert {"CompletionRequest", "ChatRequest", "ChatMessage"} <= schemas.keys()
    for part in text.split('"$ref":"')[1:]:
        assert part.partition('"')[0].removeprefix("#/components/schemas/") in schemas
