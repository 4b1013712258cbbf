# SPDX-License-Identifier: Apache-2.0
"""Pins over HTTP, with the real engine behind."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serverkit import running

from enginekit import make_engine
from llmkit import ChatTokenizer
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import build_app
from octavo.types.config import CacheConfig

PROMPT = "You are a careful assistant."  # 28 tokens of a byte: three full blocks of 8


class Site:
    def __init__(self, *, debug_routes: bool = True, prefix_caching: bool = True) -> None:
        cache = CacheConfig(enable_prefix_caching=prefix_caching)
        self.sync = make_engine(cache=cache)
        self.engine = AsyncEngine(self.sync)
        self.engine.start()
        self.app = build_app(
            self.engine, ChatTokenizer(), model_name="echo", debug_routes=debug_routes
        )
        self.url = ""

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, trust_env=False, timeout=20)

    def pins(self) -> list[dict[str, object]]:
        reply = httpx.get(self.url + "/v1/kv/pins", trust_env=False, timeout=20)
        found: list[dict[str, object]] = reply.json()["data"]
        return found

    def cached(self, prompt: str) -> int:
        answer = self.post("/v1/completions", prompt=prompt, max_tokens=1).json()
        found: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    def flood(self) -> None:
        for number in range(30):
            self.cached(f"{number:02} " * 19)


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    try:
        with running(site.app, drain_s=0.5) as site.url:
            yield site
    finally:
        site.engine.shutdown()


def test_a_pinned_prompt_stays_and_another_does_not(site):
    pin = site.post("/v1/kv/pin", prompt=PROMPT).json()
    assert (pin["num_tokens"], pin["num_pinned_tokens"]) == (28, 24)
    assert "careful" not in str(pin)
    site.cached("Another prompt, likewise long")
    site.flood()
    assert site.cached(PROMPT) == 24
    site.flood()
    assert site.cached("Another prompt, likewise long") == 0
    assert site.engine.stats().num_pinned_blocks == 3


def test_list_unpin_reset(site):
    pin = site.post("/v1/kv/pin", prompt=PROMPT).json()
    assert site.post("/v1/kv/pin", prompt=PROMPT).json()["id"] == pin["id"]
    assert site.pins() == [pin]
    gone = site.post("/v1/kv/unpin", id=pin["id"])
    assert (gone.status_code, gone.json()["deleted"]) == (200, True)
    again = site.post("/v1/kv/unpin", id=pin["id"])
    assert (again.status_code, again.json()["error"]["param"]) == (404, "id")
    site.post("/v1/kv/pin", prompt=list(range(20)))
    assert site.post("/reset_prefix_cache").json() == {"success": True, "all_free": True}
    assert site.pins() == []
    assert site.cached(PROMPT) == 0


def test_a_reset_of_what_runs_changes_no_answer(site):
    ask = {"prompt": PROMPT, "max_tokens": 30, "temperature": 0}
    alone = site.post("/v1/completions", **ask).json()["choices"][0]["text"]
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(site.post, "/v1/completions", **ask)
        for _ in range(10):
            reply = site.post("/reset_prefix_cache", preempt_running=True)
            assert (reply.status_code, reply.json()["success"]) == (200, True)
    assert answer.result().json()["choices"][0]["text"] == alone


def test_a_reset_needs_no_body_and_takes_no_other(site):
    assert httpx.post(site.url + "/reset_prefix_cache", trust_env=False).status_code == 200
    for body, param in (({"preempt_running": 1}, "preempt_running"), ({"colour": 1}, "colour")):
        reply = site.post("/reset_prefix_cache", **body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("content", [PROMPT, [{"type": "text", "text": PROMPT}]])
def test_a_chat_that_begins_so_finds_it(site, content):
    system = {"role": "system", "content": content}
    assert site.post("/v1/kv/pin", messages=[system]).json()["num_pinned_tokens"] == 32
    user = {"role": "user", "content": "Hi"}
    body = {"messages": [system, user], "max_tokens": 1}
    usage = site.post("/v1/chat/completions", **body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 32


def test_messages_are_what_they_are_in_a_chat(site):
    system = {"role": "developer", "content": [{"type": "text", "text": PROMPT}]}
    assert site.post("/v1/kv/pin", messages=[system]).json()["num_pinned_tokens"] == 32
    body = {"messages": [system, {"role": "user", "content": "Hi"}], "max_tokens": 1}
    usage = site.post("/v1/chat/completions", **body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 32


def test_the_salt_keeps_strangers_apart(site):
    assert site.post("/v1/kv/pin", prompt=PROMPT, cache_salt="mine").status_code == 200
    assert site.cached(PROMPT) == 0
    body = {"prompt": PROMPT, "cache_salt": "mine", "max_tokens": 1}
    usage = site.post("/v1/completions", **body).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 24


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "x", "messages": []}, "messages"),
        ({"prompt": "x", "messages": [{"role": "user", "content": "x"}]}, "prompt"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"prompt": "short"}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": [1, 10**9] * 8}, "prompt"),
        ({"prompt": "x" * 5000}, "prompt"),
        ({"prompt": PROMPT, "cache_salt": "x" * 2000}, "cache_salt"),
        ({"prompt": PROMPT, "colour": 1}, "colour"),
    ],
)
def test_what_cannot_be_pinned_is_a_400(site, body, param):
    reply = site.post("/v1/kv/pin", **body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert site.pins() == []


def test_strangers_have_no_such_routes():
    site = Site(debug_routes=False)
    try:
        with running(site.app) as site.url:
            for path in ("/v1/kv/pin", "/v1/kv/unpin", "/reset_prefix_cache"):
                assert site.post(path, prompt=PROMPT).status_code == 404
    finally:
        site.engine.shutdown()


def test_without_a_cache_there_is_nothing_to_pin_to():
    site = Site(prefix_caching=False)
    try:
        with running(site.app) as site.url:
            reply = site.post("/v1/kv/pin", prompt=PROMPT)
            assert reply.status_code == 400
            assert "enable_prefix_caching" in reply.json()["error"]["message"]
    finally:
        site.engine.shutdown()
