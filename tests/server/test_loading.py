# SPDX-License-Identifier: Apache-2.0
"""The port is open before the model is there, and says how far it is."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from serverkit import ReciteEngine, connect, make_app, running, wait_until
from test_real_engine import Server

from octavo.server.loading import LoadingApp, LoadingCancelled
from octavo.server.run import bind, serve_while_loading

pytestmark = pytest.mark.anyio

PROGRAM = """
import sys
from serverkit import ReciteEngine, make_app
from octavo.server.run import bind, serve_while_loading, url_of

def load(progress):
    for line in sys.stdin:
        progress("Loading the weights", int(line), 8)
        if int(line) == 8:
            break
    return make_app(ReciteEngine())

sock = bind(port=0)
print(url_of(sock), flush=True)
serve_while_loading(load, sock=sock, drain_s=0.3)
print("cleaned up", flush=True)
"""


class Loading:
    """A server whose loading goes on with each ``step``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = process.stdout.readline().strip()
        self.client = httpx.Client(trust_env=False, transport=httpx.HTTPTransport(retries=5))

    def get(self, path: str) -> httpx.Response:
        return self.client.get(self.url + path)

    def post(self, path: str) -> httpx.Response:
        return self.client.post(self.url + path, json={"prompt": "Hi", "max_tokens": 1})

    def step(self, done: int) -> None:
        self.process.stdin.write(f"{done}\n")
        self.process.stdin.flush()

    def end(self) -> tuple[str, str]:
        return self.process.communicate(timeout=20)


@contextmanager
def loading() -> Iterator[Loading]:
    folders = [str(Path(__file__).parent), *sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )
    with process:
        server = Loading(process)
        try:
            yield server
        finally:
            server.client.close()
            process.kill()


def test_it_answers_while_it_loads_and_then_serves():
    with loading() as server:
        first = server.get("/health/ready")
        assert first.status_code == 503
        assert first.headers["retry-after"]
        assert first.json()["status"] == "loading"
        server.step(3)
        wait_until(lambda: server.get("/health/ready").json()["percent"] == 37.5)
        assert server.get("/health/ready").json()["stage"] == "Loading the weights"
        assert server.get("/health/live").status_code == 200
        assert server.get("/health").status_code == 503
        refused = server.post("/v1/completions")
        assert (refused.status_code, bool(refused.headers["retry-after"])) == (503, True)
        assert server.post("/v1/messages").json()["type"] == "error"
        server.step(8)
        wait_until(lambda: server.get("/health/ready").status_code == 200)
        assert server.post("/v1/completions").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        out, err = server.end()
    assert (server.process.returncode, out) == (0, "cleaned up\n")
    assert "Traceback" not in err


def test_a_signal_ends_the_loading_when_it_next_reports():
    with loading() as server:
        server.step(1)
        wait_until(lambda: server.get("/health/ready").json()["percent"] == 12.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        server.step(2)
        out, err = server.end()
    assert (server.process.returncode, out) == (0, "cleaned up\n")
    assert "Traceback" not in err


def test_a_signal_at_the_very_end_of_the_loading_is_an_orderly_end_too():
    with bind(port=0) as sock:
        host, port = sock.getsockname()

        def is_refused() -> bool:
            try:
                socket.create_connection((host, port)).close()
            except OSError:
                return True
            return False

        def load(progress):
            wait_until(lambda: not is_refused())
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(is_refused)  # the server is on its way out, and here is the application
            return make_app(ReciteEngine())

        serve_while_loading(load, sock=sock, drain_s=0.1)


def test_a_loading_that_fails_raises_its_error():
    def load(progress):
        raise LookupError("no such model")

    with bind(port=0) as sock, pytest.raises(LookupError, match="no such model"):
        serve_while_loading(load, sock=sock, drain_s=0.1)


def test_a_busy_engine_does_not_delay_it():
    server = Server()
    body = {"prompt": "hello", "max_tokens": 5}
    try:
        with running(server.app) as server.url, ThreadPoolExecutor(1) as pool:
            server.hold()
            answer = pool.submit(server.post, "/v1/completions", **body)
            wait_until(lambda: server.executor.plans)
            for path in ("/health", "/health/ready", "/health/live"):
                response = httpx.get(server.url + path, trust_env=False, timeout=2)
                assert response.status_code == 200, path
            assert not answer.done()
            server.let_go()
            assert answer.result(20).status_code == 200
    finally:
        server.let_go()
        server.engine.shutdown()


async def test_reports_without_a_size_have_no_percent():
    app = LoadingApp()
    app.report("Resolving", 0, 0)
    async with connect(app) as client:
        assert (await client.get("/health/ready")).json()["percent"] is None
        app.open(make_app())
        assert (await client.get("/health/ready")).json()["status"] == "ready"
    app.cancel()
    with pytest.raises(LoadingCancelled):
        app.report("Resolving", 0, 0)


async def test_readiness_has_a_reason():
    engine = ReciteEngine()
    app = make_app(engine)
    async with connect(app) as client:

        async def status() -> tuple[int, str]:
            response = await client.get("/health/ready")
            assert bool(response.headers.get("retry-after")) == (response.status_code == 503)
            return response.status_code, response.json()["status"]

        assert await status() == (200, "ready")
        engine.is_full = True
        assert await status() == (503, "queue_full")
        assert (await client.get("/health")).status_code == 200  # those inside are well
        app.state.lifecycle.start_draining()
        assert await status() == (503, "draining")
        engine.is_running = False
        assert await status() == (503, "stopped")
