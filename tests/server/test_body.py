# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import tracemalloc

import pytest
from starlette.requests import Request

from octavo.server.body import DISCARD_FACTOR, read_json_body
from octavo.server.errors import ApiError
from octavo.server.sse import ClientGone

pytestmark = pytest.mark.anyio

CHUNK_BYTES = 2**16


def make_request(num_chunks: int, *, gone: bool = False, kind: str = "application/json"):
    """A request whose body arrives chunk by chunk; returns it with the list of chunks delivered."""
    delivered: list[int] = []

    async def receive():
        if gone and len(delivered) == num_chunks:
            return {"type": "http.disconnect"}
        delivered.append(CHUNK_BYTES)
        more = gone or len(delivered) < num_chunks
        return {"type": "http.request", "body": bytes(CHUNK_BYTES), "more_body": more}

    scope = {"type": "http", "headers": [(b"content-type", kind.encode())]}
    return Request(scope, receive), delivered


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.api+json"])
async def test_body_up_to_the_limit_is_whole(kind):
    request, _ = make_request(4, kind=kind)
    assert len(await read_json_body(request, 4 * CHUNK_BYTES)) == 4 * CHUNK_BYTES


async def test_too_much_is_heard_out_to_a_limit_and_not_kept():
    request, delivered = make_request(10_000)
    limit = 4 * CHUNK_BYTES
    tracemalloc.start()
    try:
        with pytest.raises(ApiError, match="larger than"):
            await read_json_body(request, limit)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(delivered) == limit * DISCARD_FACTOR + CHUNK_BYTES
    assert peak_bytes < 2 * limit  # what was below the limit, a chunk in flight, small change


async def test_client_that_leaves_midway_is_gone():
    request, _ = make_request(2, gone=True)
    with pytest.raises(ClientGone):
        await read_json_body(request, 2**30)
