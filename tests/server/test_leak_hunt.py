# SPDX-License-Identifier: Apache-2.0
"""Clients that die in every state of their request, with a real model behind a real socket.

24 blocks of 16 slots for up to three answers of 340 tokens: some 128 tokens in, blocks are short,
and somebody is swapped out. 8 tokens a step, so that reading 200 takes a while. Alone an answer
takes seconds, which is many leases.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from serverkit import running, wait_until

from octavo.assemble import build_engine
from octavo.engine.async_engine import AsyncEngine
from octavo.server import views
from octavo.server.app import build_app
from octavo.types.config import CacheConfig, EngineConfig, RuntimeConfig, SchedulerConfig

pytestmark = pytest.mark.model

LEASE_S = 0.4
PATIENCE_S = (
    60.0  # far beyond what any of this takes, on a machine that does something else as well
)
NUM_BLOCKS = 24

Row = dict[str, object]


class Site:
    """A server, and the clients that hang on it, each a socket that (nearly) nobody reads."""

    def __init__(self, engine: AsyncEngine, url: str) -> None:
        self.engine = engine
        self.url = url
        self.clients: dict[str, socket.socket] = {}
        self._names = count()

    def connect(self, *, num_prompt: int, max_tokens: int, stream: bool) -> str:
        """A client that asks, and its name, with which its request's id begins."""
        name = f"client{next(self._names):03}"
        body = {
            "prompt": [100 + number % 50 for number in range(num_prompt)],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": stream,
        }
        data, parts = json.dumps(body).encode(), urlsplit(self.url)
        head = "POST /v1/completions HTTP/1.1\r\nhost: octavo\r\ncontent-type: application/json\r\n"
        head += f"x-request-id: {name}\r\ncontent-length: {len(data)}\r\n\r\n"
        sock = self.clients[name] = socket.create_connection((parts.hostname, parts.port), 10)
        sock.sendall(head.encode() + data)
        return name

    def read_to_the_end(self, name: str) -> None:
        """Kill a client whose answer is ending: it has read the reason, and nothing after it."""
        text = b""
        while b'"finish_reason":"length"' not in text:
            text += self.clients[name].recv(256)
        self.kill(name)

    def kill(self, name: str) -> None:
        self.clients.pop(name).close()

    def kill_all(self) -> None:
        for name in list(self.clients):
            self.kill(name)

    def rows(self) -> dict[str, Row]:
        """What the engine says of each client's request."""
        rows = asyncio.run(self.engine.ask(views.requests))
        return {str(row["id"]).removeprefix("cmpl-")[: len("client000")]: row for row in rows}

    def find(self, wanted: Callable[[Row], bool]) -> str:
        """The name of the first client whose request is as wanted, once there is one."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [n for n, row in self.rows().items() if n in self.clients and wanted(row)]
            return bool(found)

        wait_until(look, PATIENCE_S)
        return found[0]

    def settle(self) -> None:
        """Wait until no request and no block is left, and prove the books."""
        wait_until(lambda: not self.rows(), PATIENCE_S)
        wait_until(lambda: self.engine.stats().num_free_blocks == NUM_BLOCKS, PATIENCE_S)
        asyncio.run(self.engine.ask(lambda engine: engine.check()))
        stats = self.engine.stats()
        assert stats.num_free_swap_blocks == stats.num_swap_blocks
        assert (stats.audit_failures_total, stats.reclaimed_blocks_total) == (0, 0)


@contextmanager
def site(path: Path, **runtime: float) -> Iterator[Site]:
    config = EngineConfig(
        cache=CacheConfig(
            num_blocks=NUM_BLOCKS, block_size=16, num_swap_blocks=96, enable_prefix_caching=False
        ),
        scheduler=SchedulerConfig(
            max_num_seqs=3,
            max_num_batched_tokens=8,
            max_model_len=360,
            preemption_mode="swap",
            admission_reserve="none",
            max_queue_wait_s=0,
        ),
        runtime=RuntimeConfig(threads=1, **runtime),  # type: ignore[arg-type]
    )
    assembled = build_engine(path, config)
    engine = AsyncEngine(assembled.engine)
    engine.start()
    try:
        app = build_app(engine, assembled.tokenizer, model_name="demo", debug_routes=True)
        with running(app, drain_s=0) as url:
            one = Site(engine, url)
            try:
                yield one
            finally:
                one.kill_all()
    finally:
        engine.shutdown()
        assembled.close()


def is_reading(row: Row) -> bool:
    computed, prompt = int(str(row["num_computed_tokens"])), int(str(row["num_prompt_tokens"]))
    return row["state"] == "running" and 0 < computed < prompt - 8


# How to bring a client into each state: company and its prompt, answer, and what its row shows.
STATES: dict[str, tuple[int, int, int, Callable[[Row], bool]]] = {
    "queued": (3, 10, 340, lambda row: row["state"] == "waiting"),
    "prefill": (0, 200, 100, is_reading),
    "decode": (0, 10, 340, lambda row: int(str(row["num_output_tokens"])) >= 3),
    "swapped": (2, 10, 340, lambda row: row["state"] == "swapped"),
}


FINISHING = "finishing"


def kill_in(one: Site, state: str, *, stream: bool) -> int:
    """Kill a client in this state, and then its company wherever it is; how many were killed."""
    if state == FINISHING:
        one.read_to_the_end(one.connect(num_prompt=10, max_tokens=20, stream=stream))
        return 1
    company, num_prompt, max_tokens, wanted = STATES[state]
    for _ in range(company + 1):
        one.connect(num_prompt=num_prompt, max_tokens=max_tokens, stream=stream)
    one.kill(one.find(wanted))
    one.kill_all()
    return company + 1


@pytest.fixture(scope="module")
def healthy(smollm2_path: Path) -> Iterator[Site]:
    with site(smollm2_path, request_lease_s=0, reclaim_interval_s=0.1, block_lease_s=30) as one:
        yield one


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("state", [*STATES, FINISHING])
def test_a_client_that_dies_gives_everything_back(healthy: Site, state: str, stream: bool) -> None:
    """Without any lease: the server hears of it, and says so to the engine."""
    before = healthy.engine.stats().finished_total["abort"]
    num_killed = kill_in(healthy, state, stream=stream)
    healthy.settle()
    num_aborted = healthy.engine.stats().finished_total["abort"] - before
    assert num_aborted == num_killed or state == FINISHING


@pytest.fixture(scope="module")
def deaf(smollm2_path: Path) -> Iterator[Site]:
    """The engine never hears that a client has gone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCTAVO_CHAOS", "dropabort:1")
        with site(smollm2_path, request_lease_s=LEASE_S) as one:
            yield one


@pytest.mark.parametrize("state", [*STATES, FINISHING])
def test_a_lost_abort_costs_one_lease(deaf: Site, state: str, caplog) -> None:
    before = deaf.engine.stats().expired_leases_total
    with caplog.at_level(logging.WARNING, "octavo"):
        num_killed = kill_in(deaf, state, stream=True)
        deaf.settle()
    num_expired = deaf.engine.stats().expired_leases_total - before
    assert num_expired == num_killed or state == FINISHING
    assert caplog.text.count("has no reader any more; it is aborted") == num_expired


def test_without_a_lease_a_lost_abort_would_be_noticed(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same hunt with the lease turned off finds its prey: the test above has teeth."""
    monkeypatch.setenv("OCTAVO_CHAOS", "dropabort:1")
    with site(smollm2_path, request_lease_s=0) as one:
        kill_in(one, "decode", stream=True)
        wait_until(lambda: not one.clients)
        time.sleep(2 * LEASE_S)
        assert one.rows()
        assert one.engine.stats().num_used_blocks > 0


def test_a_lost_reference_is_named_and_taken_back(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setenv("OCTAVO_CHAOS", "lostref:1")
    lease = {"reclaim_interval_s": 0.1, "block_lease_s": 2.0, "block_audit_interval_s": 0.1}
    with caplog.at_level(logging.ERROR, "octavo"), site(smollm2_path, **lease) as one:
        name = one.connect(num_prompt=10, max_tokens=340, stream=True)
        one.find(lambda row: int(str(row["num_output_tokens"])) >= 3)
        one.kill(name)
        wait_until(lambda: not one.rows(), PATIENCE_S)
        assert one.engine.stats().num_used_blocks == 1  # nothing takes it back before its lease
        wait_until(lambda: one.engine.stats().reclaimed_blocks_total == 1, PATIENCE_S)
        stats = one.engine.stats()
        assert (stats.num_used_blocks, stats.num_free_blocks) == (0, NUM_BLOCKS)
        assert stats.audit_failures_total >= 1
        asyncio.run(one.engine.ask(lambda engine: engine.check()))
    (line,) = [r.getMessage() for r in caplog.records if "took back" in r.getMessage()]
    assert "1 references, 0 owners" in line
    assert f" of cmpl-{name}-" in line.rpartition("free by ")[2]
    assert "KV blocks do not balance: block " in caplog.text
