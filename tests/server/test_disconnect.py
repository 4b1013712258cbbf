# SPDX-License-Identifier: Apache-2.0
"""A client that closes its socket gets its capacity back to others, whatever it was waiting for."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest
from serverkit import ReciteEngine, make_app, running, wait_until


def open_request(url: str, path: str, body: dict) -> socket.socket:
    """Send a request over a raw socket and leave the answer unread."""
    parts = urlsplit(url)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: octavo\r\ncontent-type: application/json\r\n"
    sock = socket.create_connection((parts.hostname, parts.port), timeout=10)
    sock.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    return sock


BODIES = {
    "/v1/completions": {"prompt": ["Hi", "Ho"], "max_tokens": 100},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stall_after", [0, 3])
def test_closing_the_socket_aborts_the_requests(path, stream, stall_after):
    engine = ReciteEngine(stall_after=stall_after)
    num_prompts = 2 if path == "/v1/completions" else 1
    app = make_app(engine)
    with running(app) as url:
        sock = open_request(url, path, {**BODIES[path], "stream": stream})
        wait_until(lambda: len(engine.live) == num_prompts)
        assert engine.aborted == []
        sock.close()
        wait_until(lambda: not engine.live)
        wait_until(lambda: app.state.lifecycle.num_live == 0)
    assert len(engine.aborted) == num_prompts


def test_only_the_one_who_left_is_aborted():
    engine = ReciteEngine(stall_after=3)
    body = {"prompt": "Hi", "max_tokens": 100, "stream": True}
    with running(make_app(engine), drain_s=0) as url:
        stays = open_request(url, "/v1/completions", body)
        wait_until(lambda: len(engine.live) == 1)
        (stayed,) = engine.live
        leaves = open_request(url, "/v1/completions", body)
        wait_until(lambda: len(engine.live) == 2)
        leaves.close()
        wait_until(lambda: len(engine.live) == 1)
        assert list(engine.live) == [stayed]
    stays.close()


def test_half_a_body_starts_nothing():
    engine = ReciteEngine()
    with running(make_app(engine)) as url:
        parts = urlsplit(url)
        sock = socket.create_connection((parts.hostname, parts.port), timeout=10)
        head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        sock.sendall(f'{head}content-length: 100\r\n\r\n{{"prompt": '.encode())
        sock.close()
    assert engine.requests == []
