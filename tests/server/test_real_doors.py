# SPDX-License-Identifier: Apache-2.0
"""Beam search, timelines, full queues and slow readers over the real engine."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serverkit import events_of, running, wait_until
from test_disconnect import open_request
from test_real_engine import Server

from asynckit import eventually
from enginekit import make_engine, run_all
from fakes import EchoExecutor
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import build_app
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.config import RuntimeConfig

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
SEARCH = {"use_beam_search": True, "max_tokens": 5}


@pytest.fixture
def doors() -> Iterator[Server]:
    server = Server()
    try:
        with running(server.app, drain_s=0.5) as server.url:
            yield server
    finally:
        server.let_go()
        server.engine.shutdown()


class TestBeamSearch:
    def searched(self, prompt: str, **params: object) -> list[str]:
        engine = make_engine()
        search = BeamSearchParams(max_tokens=5, **params)  # type: ignore[arg-type]
        engine.add_request("r", prompt, search)
        (output,) = run_all(engine)
        return [sample.text for sample in output.outputs]

    def test_it_is_the_engines_own(self, doors):
        answer = doors.post(COMPLETIONS, prompt="hello", n=3, **SEARCH).json()
        assert [c["text"] for c in answer["choices"]] == self.searched("hello", beam_width=3)
        assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
        assert answer["usage"]["completion_tokens"] == 15

    def test_best_of_is_the_width_and_n_the_number_of_answers(self, doors):
        body = {"n": 2, "best_of": 4, "length_penalty": 0.0, "early_stopping": True, **SEARCH}
        answer = doors.post(COMPLETIONS, prompt="hello", **body).json()
        wide = self.searched("hello", beam_width=4, length_penalty=0.0, early_stopping=True)
        assert [choice["text"] for choice in answer["choices"]] == wide[:2]

    def test_in_a_chat_and_for_several_prompts(self, doors):
        messages = [{"role": "user", "content": "hello"}]
        chat = doors.post(CHAT, messages=messages, n=2, **SEARCH).json()
        texts = [choice["message"]["content"] for choice in chat["choices"]]
        assert texts == self.searched("hello\n", beam_width=2)
        two = doors.post(COMPLETIONS, prompt=["hello", "world"], n=2, **SEARCH).json()
        assert [choice["index"] for choice in two["choices"]] == [0, 1, 2, 3]
        assert two["choices"][3]["text"] == self.searched("world", beam_width=2)[1]

    @pytest.mark.parametrize("temperature", [0, 1])
    def test_the_usual_temperatures_pass(self, doors, temperature):
        reply = doors.post(COMPLETIONS, prompt="hello", n=2, temperature=temperature, **SEARCH)
        assert reply.status_code == 200

    @pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"stream": True}, "stream"),
            ({"temperature": 0.7}, "temperature"),
            ({"top_p": 0.5}, "top_p"),
            ({"stop": ["x"]}, "stop"),
            ({"n": 65}, "n"),
            ({"n": 2, "best_of": 65}, "best_of"),
            ({"n": 3, "best_of": 2}, "best_of"),
            ({"length_penalty": 1000}, "length_penalty"),
            ({"early_stopping": "soon"}, "early_stopping"),
            ({"use_beam_search": False, "length_penalty": 2}, "length_penalty"),
            ({"use_beam_search": None, "early_stopping": "never"}, "early_stopping"),
        ],
    )
    def test_what_does_not_go_with_a_search_is_a_400(self, doors, path, fields, param):
        body = {"prompt": "hello", "messages": [{"role": "user", "content": "hello"}], **SEARCH}
        reply = doors.post(path, **{**body, **fields})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)

    @pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
    @pytest.mark.parametrize(("fields", "param"), [({"n": 17}, "n"), ({"best_of": 17}, "best_of")])
    def test_more_beams_than_sequences_are_refused_by_the_fields_own_name(
        self, doors, path, fields, param
    ):
        body = {"prompt": "hello", "messages": [{"role": "user", "content": "hello"}], **SEARCH}
        error = doors.post(path, **{**body, **fields}).json()["error"]
        assert error["param"] == param
        assert error["message"].startswith(f"{param} must be at most ")


class TestTimeline:
    PARTS = ("queue_ms", "prefill_ms", "decode_ms", "swapped_ms", "stalled_ms")

    def test_a_whole_answer_has_one_for_each_prompt(self, doors):
        doors.hold()
        body = {"prompt": ["hello", "world"], "max_tokens": 3, "return_timeline": True}
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(doors.post, COMPLETIONS, **body)
            wait_until(lambda: doors.executor.plans)
            doors.clock.advance(1.5)
            doors.let_go()
            answer = asked.result(20).json()
        first, second = answer["timelines"]
        assert first["prefill_ms"] == first["time_to_first_token_ms"] == 1500
        for one in (first, second):
            assert sum(one[part] for part in self.PARTS) == one["total_ms"]
            assert one["num_preemptions"] == 0

    def test_a_stream_ends_with_it(self, doors):
        body = {"prompt": "hello", "max_tokens": 3, "stream": True, "return_timeline": True}
        *_, last = events_of(doors.post(COMPLETIONS, **body).text)
        assert last["choices"] == []
        assert len(last["timelines"]) == 1
        options = {"include_usage": True}
        *rest, last = events_of(doors.post(COMPLETIONS, **body, stream_options=options).text)
        assert last["usage"]["completion_tokens"] == 3
        assert "timelines" in last
        assert not any("timelines" in chunk or chunk["usage"] for chunk in rest)

    def test_nobody_gets_one_unasked(self, doors):
        assert "timelines" not in doors.post(COMPLETIONS, prompt="hello", max_tokens=2).json()


@pytest.mark.parametrize(
    ("policy", "late", "early"),
    [
        ("priority", {"priority": 7}, {"priority": -7}),
        ("fcfs", {"service_tier": "flex"}, {"service_tier": "priority"}),
        ("fair", {"user": "greedy"}, {"user": "modest"}),
    ],
)
def test_what_a_request_says_of_itself_decides_who_goes_first(policy, late, early):
    """One seat. While somebody of the user "greedy" has it, the late one comes before the early."""
    steps = threading.Semaphore(1)
    executor = EchoExecutor(gate=lambda: steps.acquire(timeout=20))
    engine = AsyncEngine(make_engine(executor, max_num_seqs=1, scheduling_policy=policy))
    engine.start()
    app = build_app(engine, engine.admission._tokenizer, model_name="echo")

    def ask(name: str, fields: dict[str, object]) -> None:
        body = {"prompt": "hello, world", "max_tokens": 2, **fields}
        headers = {"x-request-id": name}
        httpx.post(url + COMPLETIONS, json=body, headers=headers, trust_env=False)

    try:
        with running(app, drain_s=0) as url, ThreadPoolExecutor(3) as pool:
            for number, (name, fields) in enumerate(
                [("first", {"user": "greedy"}), ("late", late), ("early", early)]
            ):
                pool.submit(ask, name, fields)
                wait_until(lambda number=number: len(engine._inside) == number + 1)
                if number == 0:
                    wait_until(lambda: engine.stats().num_running == 1)
            steps.release(1000)
    finally:
        steps.release(1000)
        engine.shutdown()
    starts = [e for e in engine.trace.events() if e.name == "waiting -> running"]
    names = [str(dict(event.args)["request_id"]).split("-")[1] for event in starts]
    assert list(dict.fromkeys(names)) == ["first", "early", "late"]


def small_app(runtime: RuntimeConfig, executor: EchoExecutor):
    engine = AsyncEngine(
        make_engine(executor, clock=time.monotonic, runtime=runtime, max_model_len=3000)
    )
    engine.start()
    return engine, build_app(engine, engine.admission._tokenizer, model_name="echo")


def test_a_full_queue_is_a_429_that_says_when_to_come_back(doors):
    engine, app = small_app(
        RuntimeConfig(max_num_queued_tokens=12), EchoExecutor(num_blocks=400, gate=doors._open.wait)
    )
    doors.hold()
    try:
        with running(app, drain_s=0) as url:
            body = {"prompt": "hello", "max_tokens": 3}
            socks = [open_request(url, COMPLETIONS, body) for _ in range(2)]  # of 5 tokens each
            wait_until(lambda: app.state.lifecycle.num_live == 2)
            reply = httpx.post(url + COMPLETIONS, json=body, trust_env=False, timeout=20)
            error = reply.json()["error"]
            assert (reply.status_code, error["type"]) == (429, "rate_limit_error")
            assert error["code"] == "engine_overloaded"
            assert 1 <= int(reply.headers["retry-after"]) <= 60
            for sock in socks:
                sock.close()
            doors.let_go()
    finally:
        doors.let_go()
        engine.shutdown()


class SleepingReader:
    """A client, as the application sees it, that takes nothing of an answer until it is woken."""

    def __init__(self, body: dict[str, object]) -> None:
        self.woken = asyncio.Event()
        self.text = b""
        self._body: bytes | None = json.dumps(body).encode()
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": COMPLETIONS,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }

    async def receive(self) -> dict[str, object]:
        body, self._body = self._body, None
        if body is None:
            await asyncio.Event().wait()  # it never leaves
        return {"type": "http.request", "body": body}

    async def send(self, message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            await self.woken.wait()
            self.text += message["body"]


def test_a_reader_that_sleeps_is_told_why_it_was_given_up():
    executor = EchoExecutor(
        num_blocks=400, rule=lambda tokens, _: 65, gate=lambda: time.sleep(0.001)
    )
    engine, app = small_app(RuntimeConfig(request_lease_s=0.2), executor)

    async def main() -> bytes:
        reader = SleepingReader({"prompt": "hello", "max_tokens": 2900, "stream": True})
        answering = asyncio.create_task(app(reader.scope, reader.receive, reader.send))
        await eventually(engine, lambda stats: stats.expired_leases_total == 1)
        reader.woken.set()
        await asyncio.wait_for(answering, 20)
        return reader.text

    try:
        text = asyncio.run(main())
    finally:
        engine.shutdown()
    last = events_of(text.decode())[-1]["error"]
    assert last["code"] == "lease_expired"
    assert "nobody took an output for 0.2 seconds (request_lease_s)" in last["message"]
