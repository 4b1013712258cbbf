# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from serverkit import ReciteEngine, connect, make_app

from octavo.server.deadlines import TIMEOUT_HEADER

BODY = {"prompt": ["Hi", "Ho"], "max_tokens": 2}
pytestmark = pytest.mark.anyio


async def post(value: str, engine: ReciteEngine | None = None, **fields: object):
    async with connect(make_app(engine)) as client:
        headers = {TIMEOUT_HEADER: value}
        return await client.post("/v1/completions", json={**BODY, **fields}, headers=headers)


async def test_the_shorter_limit_holds_for_every_prompt():
    engine = ReciteEngine()
    assert (await post("60000", engine)).status_code == 200
    assert (await post("60000", engine, timeout_s=7)).status_code == 200
    assert (await post("60000", engine, timeout_s=100)).status_code == 200
    limits = [request.timeout_s for request in engine.requests]
    assert limits[2:4] == [7, 7]
    # What reading and tokenising took is gone; a test that takes ten seconds for it is broken.
    assert all(50 < limit <= 60 for limit in limits[:2] + limits[4:])


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "", "9" * 10, "1" * 400])
async def test_what_is_no_limit_is_a_400(value):
    reply = await post(value)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, TIMEOUT_HEADER)
    assert len(error["message"]) < 200


async def test_a_limit_that_the_tokenising_takes_is_a_504():
    """A millisecond is over before two thousand prompts are admitted."""
    reply = await post("1", prompt=["Hi"] * 1000)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "timeout")
