# SPDX-License-Identifier: Apache-2.0
"""A real server and the official client; a real process and its signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
from serverkit import ANSWER, MODEL, ReciteEngine, events_of, make_app, running, wait_until

from octavo.server.run import bind, url_of
from octavo.types.errors import InvalidConfig

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with running(make_app()) as url:
        http = httpx.Client(trust_env=False)
        with openai.OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http
        ) as client:
            yield client


def test_client_lists_models(client):
    models = client.models.list().data
    assert [model.id for model in models] == [MODEL, "recital"]
    assert client.models.retrieve(MODEL).id == MODEL


def test_client_completes(client):
    answer = client.completions.create(model=MODEL, prompt="Hi", max_tokens=100)
    assert answer.choices[0].text == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_client_streams_a_completion(client):
    stream = client.completions.create(model=MODEL, prompt="Hi", max_tokens=100, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == ANSWER


def test_client_chats(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=2, extra_body={"top_k": 3}
    )
    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].logprobs.content[0].top_logprobs[1].token == "G"


def test_client_streams_a_chat(client):
    options = {"include_usage": True}
    *chunks, last = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options=options
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == ANSWER
    assert last.usage.completion_tokens == len(ANSWER.encode()) + 1


def test_client_raises_its_own_exceptions(client):
    with pytest.raises(openai.NotFoundError, match="gpt-9") as not_found:
        client.completions.create(model="gpt-9", prompt="Hi")
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="temperature") as bad:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=9)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.BadRequestError, match="functions is not supported; use tools"):
        client.chat.completions.create(model=MODEL, messages=MESSAGES, functions=[{"name": "f"}])


def test_client_sees_a_failure_in_the_middle_of_a_stream():
    with running(make_app(ReciteEngine(fail_after=3))) as url:
        http = httpx.Client(trust_env=False)
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", http_client=http) as client:
            stream = client.completions.create(model=MODEL, prompt="Hi", stream=True)
            with pytest.raises(openai.APIError, match="log has the details"):
                list(stream)


@pytest.mark.parametrize("factor", [2, 7])
def test_client_that_sends_too_much_still_hears_why(factor):
    limit = 200_000  # more than a socket buffers, so that the client is still sending
    with running(make_app(max_body_bytes=limit)) as url:
        body = b" " * (factor * limit)
        headers = {"content-type": "application/json"}
        url = f"{url}/v1/completions"
        response = httpx.post(url, content=body, headers=headers, trust_env=False)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")


def test_drain_lets_the_running_finish_and_refuses_the_new():
    engine = ReciteEngine(stall_after=3)
    app = make_app(engine)
    body = {"prompt": "Hi", "max_tokens": 4, "stream": True}
    answers = []

    def ask(url):
        answers.append(httpx.post(f"{url}/v1/completions", json=body, trust_env=False).text)

    with running(app) as url, httpx.Client(base_url=url, trust_env=False) as other:
        thread = threading.Thread(target=ask, args=[url])
        thread.start()
        wait_until(lambda: engine.live)
        assert other.get("/health").status_code == 200
        app.state.lifecycle.start_draining()
        assert other.get("/health").status_code == 503
        refused = other.post("/v1/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "server_error")
        assert refused.headers["retry-after"]
        engine.release()
    thread.join()
    assert events_of(answers[0])[-1]["choices"][0]["finish_reason"] == "length"


def test_drain_ends_the_rest_with_an_error_event_after_its_limit():
    engine = ReciteEngine(stall_after=3)
    answers = []

    def ask(url):
        body = {"prompt": "Hi", "stream": True}
        answers.append(httpx.post(f"{url}/v1/completions", json=body, trust_env=False).text)

    with running(make_app(engine), drain_s=0.2) as url:
        thread = threading.Thread(target=ask, args=[url])
        thread.start()
        wait_until(lambda: engine.live)
    thread.join()
    *chunks, last = events_of(answers[0])
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert last["error"]["code"] == "engine_unavailable"
    assert len(engine.aborted) == 1


PROGRAM = """
import sys
from serverkit import ReciteEngine, make_app
from octavo.server.run import bind, serve, url_of
sock = bind(port=0)
print(url_of(sock), flush=True)
serve(make_app(ReciteEngine(stall_after=2)), sock=sock, drain_s=0.3)
print("cleaned up", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_process_in_order(number):
    folders = [str(Path(__file__).parent), *sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    with process:
        url = process.stdout.readline().strip()
        retrying = httpx.HTTPTransport(retries=5)
        with httpx.Client(transport=retrying) as client:
            body = {"prompt": "Hi", "stream": True}
            with client.stream("POST", f"{url}/v1/completions", json=body) as response:
                lines = response.iter_lines()
                next(lines)
                started = time.monotonic()
                process.send_signal(number)
                rest = "\n".join(lines)
        out, err = process.communicate(timeout=20)
    assert rest.endswith("data: [DONE]\n")
    assert "engine_unavailable" in rest
    assert time.monotonic() - started < 10
    assert (process.returncode, out) == (0, "cleaned up\n")
    assert "Traceback" not in err


def test_taken_port_is_a_clear_error():
    with bind(port=0) as sock:
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(InvalidConfig, match=f"127.0.0.1:{port}: Address already in use"):
            bind(port=port)


@pytest.mark.parametrize(("host", "port"), [("no such host", 0), ("127.0.0.1", 70000)])
def test_impossible_address_is_a_clear_error(host, port):
    with pytest.raises(InvalidConfig, match=r"cannot listen on|port must be"):
        bind(host, port)


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_url_of_ipv6_has_brackets():
    class Named:
        def getsockname(self):
            return ("::1", 80, 0, 0)

    assert url_of(Named()) == "http://[::1]:80"


def is_closed(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", trust_env=False)
    except httpx.ConnectError:
        return True
    return False


def test_a_second_interrupt_ends_the_running_at_once_and_quietly():
    folders = [str(Path(__file__).parent), *sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("drain_s=0.3", "drain_s=60")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    with process:
        url = process.stdout.readline().strip()
        retrying = httpx.HTTPTransport(retries=5)
        with httpx.Client(transport=retrying) as client:
            body = {"prompt": "Hi", "stream": True}
            with client.stream("POST", f"{url}/v1/completions", json=body) as response:
                lines = response.iter_lines()
                next(lines)
                process.send_signal(signal.SIGINT)
                wait_until(lambda: is_closed(url))  # the first has been heard
                process.send_signal(signal.SIGINT)
                rest = "\n".join(lines)
        out, err = process.communicate(timeout=20)
    assert rest.endswith("data: [DONE]\n")
    assert "engine_unavailable" in rest
    assert (process.returncode, out) == (0, "cleaned up\n")
    assert "CancelledError" not in err
    assert "Traceback" not in err
