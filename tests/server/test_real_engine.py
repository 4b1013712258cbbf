# SPDX-License-Identifier: Apache-2.0
"""The same application over the real engine, whose executor checks every plan."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serverkit import events_of, running, wait_until
from test_disconnect import open_request

from enginekit import MAX_MODEL_LEN, make_engine
from fakes import EchoExecutor, ManualClock
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import build_app
from octavo.types.errors import CorruptState

COMPLETIONS = "/v1/completions"


class TemplateTokenizer:
    """The engine's byte tokenizer with the simplest chat template."""

    def __init__(self, tokenizer) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str):
        return getattr(self._tokenizer, name)

    def render_chat(self, messages, *, add_generation_prompt=True, variables=None) -> str:
        return "".join(f"{message['content']}\n" for message in messages)


class Server:
    """A running server; ``hold`` stops the engine inside its step, ``let_go`` frees it again."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.executor = EchoExecutor(gate=lambda: self._open.wait(20))
        self.clock = ManualClock()
        self.sync = make_engine(self.executor, clock=self.clock)
        self.engine = AsyncEngine(self.sync)
        self.engine.start()
        tokenizer = TemplateTokenizer(self.sync.admission._tokenizer)
        self.app = build_app(self.engine, tokenizer, model_name="echo")
        self.url = ""

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def post(self, path: str, **body: object) -> httpx.Response:
        return httpx.post(self.url + path, json=body, trust_env=False, timeout=20)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    try:
        with running(server.app, drain_s=0.5) as server.url:
            yield server
    finally:
        server.let_go()
        server.engine.shutdown()


def test_settings_hold_for_every_sample_whole_or_in_a_stream(server):
    body = {"prompt": "hello", "max_tokens": 12, "n": 3, "seed": 5, "min_tokens": 12}
    body |= {"presence_penalty": 1, "frequency_penalty": -0.5, "logit_bias": {"99": 4}}
    body |= {"bad_words": ["ab", "c"], "allowed_token_ids": [*range(60, 123), 257]}
    whole = server.post(COMPLETIONS, **body).json()
    texts = {choice["index"]: choice["text"] for choice in whole["choices"]}
    assert len({*texts.values()}) == 3
    for text in texts.values():
        assert len(text) == 12
        assert all("<" <= char <= "z" for char in text)
        assert "c" not in text
        assert "ab" not in text
    streamed = dict.fromkeys(texts, "")
    for event in events_of(server.post(COMPLETIONS, **body, stream=True).text):
        for choice in event["choices"]:
            streamed[choice["index"]] += choice["text"]
    assert streamed == texts
    plain = {"prompt": "hello", "max_tokens": 12, "n": 3, "seed": 5}
    answer = server.post(COMPLETIONS, **plain, allowed_token_ids=[*range(60, 123)]).json()
    assert [choice["text"] for choice in answer["choices"]] != [*texts.values()]


def test_whole_equals_stream_and_usage_is_exact(server):
    for max_tokens in (1, 2, 7, 20):
        body = {"prompt": "hello", "max_tokens": max_tokens, "temperature": 0, "logprobs": 2}
        whole = server.post(COMPLETIONS, **body).json()
        stream = server.post(
            COMPLETIONS, **body, stream=True, stream_options={"include_usage": True}
        )
        *events, last = events_of(stream.text)
        chunks = [event["choices"][0] for event in events]
        (choice,) = whole["choices"]
        assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
        assert [c["finish_reason"] for c in chunks if c["finish_reason"]] == ["length"]
        for name, values in choice["logprobs"].items():
            assert [x for c in chunks for x in c["logprobs"][name]] == values
        for usage in (last["usage"], whole["usage"]):
            del usage["prompt_tokens_details"]  # the later ones find their prompt in the cache
        assert last["usage"] == whole["usage"]
        assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (
            len("hello"),
            max_tokens,
        )


def test_stop_string_is_cut_off_in_both_ways(server):
    body = {"prompt": "hello", "max_tokens": 20, "temperature": 0}
    text = server.post(COMPLETIONS, **body).json()["choices"][0]["text"]
    stop = text[6:9]
    for stream in (False, True):
        response = server.post(COMPLETIONS, **body, stop=stop, stream=stream)
        events = events_of(response.text) if stream else [response.json()]
        choices = [event["choices"][0] for event in events]
        assert "".join(choice["text"] for choice in choices) == text[: text.index(stop)]
        assert (choices[-1]["finish_reason"], choices[-1]["stop_reason"]) == ("stop", stop)


def test_prompt_is_scored_token_by_token(server):
    body = {"prompt": [5, 16, 24], "echo": True, "logprobs": 0, "max_tokens": 0}
    logprobs = server.post(COMPLETIONS, **body).json()["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"] == [None, -16 / 8, -24 / 8]


def test_seed_alone_decides(server):
    body = {"prompt": "hello", "max_tokens": 10, "seed": 3}
    texts = [server.post(COMPLETIONS, **body).json()["choices"][0]["text"] for _ in range(2)]
    assert texts[0] == texts[1]


@pytest.mark.anyio
async def test_many_at_once_get_the_answers_that_they_get_alone(server):
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=20) as client:

        async def ask(number: int) -> str:
            body = {"prompt": f"n {number}", "max_tokens": 12, "temperature": 0}
            response = await client.post(COMPLETIONS, json=body)
            return response.json()["choices"][0]["text"]

        alone = [await ask(number) for number in range(24)]
        together = await asyncio.gather(*map(ask, range(24)))
    assert together == alone
    assert len(set(alone)) == 24


def test_chat_stops_at_the_context(server):
    body = {"messages": [{"role": "user", "content": "x" * 20}], "temperature": 0}
    answer = server.post("/v1/chat/completions", **body).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == MAX_MODEL_LEN


@pytest.mark.parametrize("stream", [False, True])
def test_closing_the_socket_frees_the_blocks(server, stream):
    server.hold()
    body = {"prompt": ["hello", "world"], "max_tokens": 40, "stream": stream}
    sock = open_request(server.url, COMPLETIONS, body)
    wait_until(lambda: server.app.state.lifecycle.num_live == 2)
    wait_until(lambda: len(server.executor.plans) > 0)
    sock.close()
    wait_until(lambda: server.app.state.lifecycle.num_live == 0)
    server.let_go()

    def is_free() -> bool:
        stats = server.engine.stats()
        return stats.finished_total["abort"] == 2 and stats.num_used_blocks == 0

    wait_until(is_free)
    assert server.engine.stats().num_running == 0


def test_failed_step_fails_its_request_and_no_other(server):
    server.executor.fail_steps = {len(server.executor.plans) + 2}
    response = server.post(COMPLETIONS, prompt="hello", max_tokens=8)
    assert response.status_code == 500
    assert "on purpose" not in response.text
    assert server.post(COMPLETIONS, prompt="hello", max_tokens=8).status_code == 200
    assert httpx.get(server.url + "/health", trust_env=False).status_code == 200


def test_dead_engine_is_reported_everywhere(server):
    def die() -> None:
        raise CorruptState("secret")

    server.executor._gate = die
    response = server.post(COMPLETIONS, prompt="hello", max_tokens=8)
    assert (response.status_code, "secret" in response.text) == (503, False)
    wait_until(lambda: not server.engine.is_running)
    assert httpx.get(server.url + "/health", trust_env=False).status_code == 503
    assert server.post(COMPLETIONS, prompt="hello").status_code == 503
    assert httpx.get(server.url + "/metrics", trust_env=False).status_code == 200


def test_several_choices_whole_and_streamed(server):
    body = {"prompt": "hello", "max_tokens": 6, "seed": 3, "n": 3}
    whole = server.post(COMPLETIONS, **body).json()
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["usage"]["completion_tokens"] == 18
    assert whole["usage"]["prompt_tokens"] == 5
    stream = server.post(COMPLETIONS, **body, stream=True, stream_options={"include_usage": True})
    *events, last = events_of(stream.text)
    assert last["usage"]["completion_tokens"] == 18
    for choice in whole["choices"]:
        chunks = [c for e in events for c in e["choices"] if c["index"] == choice["index"]]
        assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
        assert [c["finish_reason"] for c in chunks if c["finish_reason"]] == ["length"]


def test_the_best_of_several(server):
    body = {"prompt": "hello", "max_tokens": 6, "seed": 3, "n": 1, "best_of": 4}
    answer = server.post(COMPLETIONS, **body).json()
    assert len(answer["choices"]) == 1
    assert answer["usage"]["completion_tokens"] == 24
    refused = server.post(COMPLETIONS, **body, stream=True)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "best_of")


def test_a_prompt_that_was_cut_says_so(server):
    body = {"prompt": "x" * (MAX_MODEL_LEN + 6), "max_tokens": 4, "temperature": 0}
    assert server.post(COMPLETIONS, **body).status_code == 400
    answer = server.post(COMPLETIONS, **body, on_overflow="truncate_left").json()
    assert answer["usage"]["prompt_tokens"] == MAX_MODEL_LEN - 4
    assert answer["usage"]["prompt_tokens_details"]["truncated_tokens"] == 10


@pytest.mark.parametrize("streams", [False, True])
def test_time_that_runs_out_is_a_504_and_in_a_stream_the_last_event(server, streams):
    server.hold()
    body = {"prompt": "hello", "max_tokens": 30, "timeout_s": 0.5, "stream": streams}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, COMPLETIONS, **body)
        wait_until(lambda: server.executor.plans)
        server.clock.advance(1.0)
        server.let_go()
        response = answer.result(20)
    if streams:
        assert response.text.count('"code":"timeout"') == 1
        assert response.text.endswith("data: [DONE]\n\n")
    else:
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timeout")
