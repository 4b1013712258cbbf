# SPDX-License-Identifier: Apache-2.0
"""Many clients that come and go as they like, then many requests on one connection.

    python tools/soak.py                        # five minutes, 64 clients, then 2,000 requests
    python tools/soak.py --seconds 20 --model ./model.gguf

Starts a server of its own and prints one JSON document. Afterwards the books must balance: every
request that was accepted has finished, been aborted or failed; no block is in use; no client that
stayed to the end has missed it; and the sequential requests have cost no memory. The exit status
says whether that is so.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from serving import Served, serving

REST_S_MAX = 30  # for what is under way when the last client has left
GROWTH_BYTES_MAX = 16 * 2**20  # malloc's arenas and caches; a leak of 8 kB a request is as much
WORDS = "one two three red green blue cat dog bird sun moon rain".split()


@dataclass
class Report:
    """What happened. ``problems`` is empty when all is well."""

    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    counters: dict[str, Any] = field(default_factory=dict)
    rss_bytes: dict[str, int] = field(default_factory=dict)
    sequential_s: float = 0.0
    problems: list[str] = field(default_factory=list)

    def check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


class Client:
    """One client with whims of its own: what it asks, and when it loses patience."""

    def __init__(self, http: httpx.AsyncClient, report: Report, seed: int) -> None:
        self._http = http
        self._report = report
        self._random = random.Random(seed)

    async def run(self, until: float) -> None:
        while time.monotonic() < until:
            path, body = self._wish()
            self._report.outcomes[await self._ask(path, body)] += 1

    def _wish(self) -> tuple[str, dict[str, Any]]:
        draw = self._random
        text = " ".join(draw.choices(WORDS, k=draw.randint(1, 40)))
        messages = [{"role": "user", "content": text}]
        limit = draw.randint(1, 32)
        streams = draw.random() < 0.8
        return draw.choice(
            [
                ("/v1/completions", {"prompt": text, "max_tokens": limit, "stream": streams}),
                (
                    "/v1/completions",
                    {"prompt": [text, "x"], "n": 2, "max_tokens": limit, "stream": streams},
                ),
                (
                    "/v1/chat/completions",
                    {"messages": messages, "max_tokens": limit, "stream": streams},
                ),
                ("/v1/responses", {"input": text, "max_output_tokens": limit, "stream": streams}),
                (
                    "/v1/messages",
                    {"model": "soak", "messages": messages, "max_tokens": limit, "stream": streams},
                ),
            ]
        )

    async def _ask(self, path: str, body: dict[str, Any]) -> str:
        """How it went: complete, left, late (left before the first byte) or broken."""
        patience = self._random.choice([None, None, 0, self._random.randint(1, 20)])
        wait_s = self._random.uniform(0, 0.2) if patience == 0 else None
        try:
            async with asyncio.timeout(wait_s), self._http.stream("POST", path, json=body) as got:
                return await self._read(got, patience, streams=bool(body["stream"]))
        except TimeoutError:
            return "late"

    async def _read(self, got: httpx.Response, patience: int | None, *, streams: bool) -> str:
        self._report.statuses[got.status_code] += 1
        lines: list[str] = []
        async for line in got.aiter_lines():
            lines.append(line)
            if patience is not None and len(lines) > patience:
                return "left"
        text = "\n".join(lines)
        if got.status_code != 200 or '"error":{' in text:
            self._report.problems.append(f"{got.status_code}: {text[-300:]}")
            return "broken"
        return "complete" if not streams or has_ended(text) else "broken"


def has_ended(text: str) -> bool:
    last = ("[DONE]", "event: message_stop", "event: response.completed")
    return any(mark in text for mark in (*last, "event: response.incomplete"))


async def soak(served: Served, *, seconds: float, num_clients: int, num_sequential: int) -> Report:
    """Load the server, wait until it rests, and compare its books with what the clients saw."""
    report = Report()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=num_clients)
    options: dict[str, Any] = {"base_url": served.url, "timeout": 120, "trust_env": False}
    async with httpx.AsyncClient(limits=limits, **options) as http:
        until = time.monotonic() + seconds
        clients = [Client(http, report, seed) for seed in range(num_clients)]
        await asyncio.gather(*[client.run(until) for client in clients])
        await rest(http, report)
    async with httpx.AsyncClient(**options) as http:
        await sequential(http, report, served.pid, num_sequential)
        await rest(http, report)
        await check_books(http, report)
    return report


async def sequential(http: httpx.AsyncClient, report: Report, pid: int, num_requests: int) -> None:
    """One request after the other on one connection; the first tenth warms up."""
    start = time.monotonic()
    for number in range(num_requests):
        if number == num_requests // 10:
            report.rss_bytes["before"] = resident_bytes(pid)
        body = {"prompt": f"number {number}", "max_tokens": 4}
        answer = await http.post("/v1/completions", json=body)
        report.outcomes["complete" if answer.status_code == 200 else "broken"] += 1
    report.sequential_s = time.monotonic() - start
    report.rss_bytes["after"] = resident_bytes(pid)
    growth = report.rss_bytes["after"] - report.rss_bytes["before"]
    report.check(growth < GROWTH_BYTES_MAX, f"memory has grown by {growth} bytes")


async def rest(http: httpx.AsyncClient, report: Report) -> None:
    """Until nothing runs or waits."""
    deadline = time.monotonic() + REST_S_MAX
    while time.monotonic() < deadline:
        load = (await http.get("/load")).json()
        if load["num_running"] + load["num_waiting"] + load["num_swapped"] == 0:
            return
        await asyncio.sleep(0.05)
    report.check(False, f"not at rest after {REST_S_MAX} s: {load}")


async def check_books(http: httpx.AsyncClient, report: Report) -> None:
    load = (await http.get("/load")).json()
    blocks = (await http.get("/debug/blocks")).json()
    ended = await ended_by_reason(http)
    accepted = load["counters"]["accepted_total"]
    report.counters = {"accepted": accepted, **ended}
    report.check(accepted == sum(ended.values()), f"{accepted} accepted, ended: {ended}")
    report.check(ended["error"] == 0, f"{ended['error']} failed")
    report.check(load["blocks"]["num_used"] == 0, f"blocks in use: {load['blocks']}")
    report.check(load["blocks"]["num_limbo"] == 0, f"blocks in limbo: {load['blocks']}")
    for name in ("faults", "orphans", "quarantined"):
        report.check(not blocks[name], f"{name}: {blocks[name]}")
    report.check(report.outcomes["broken"] == 0, f"answers that broke off: {report.outcomes}")


async def ended_by_reason(http: httpx.AsyncClient) -> dict[str, int]:
    text = (await http.get("/metrics")).text
    ended: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("vllm:request_success_total{"):
            reason = line.split('finished_reason="')[1].split('"')[0]
            ended[reason] = int(float(line.rsplit(" ", 1)[1]))
    return ended


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sequential", type=int, default=2000)
    given = parser.parse_args()
    with serving(given.model, "--served-model-name", "soak", "--max-model-len", "512") as served:
        report = asyncio.run(
            soak(
                served,
                seconds=given.seconds,
                num_clients=given.clients,
                num_sequential=given.sequential,
            )
        )
    print(json.dumps(vars(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
