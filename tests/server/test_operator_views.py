# SPDX-License-Identifier: Apache-2.0
"""The operator's commands against ``octavo serve`` and the demo model, while blocks are short.

28 blocks of 32 slots for three answers of 400 tokens, 13 blocks each, and a fourth that waits: some
300 tokens in, somebody is swapped out.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clikit import invoke

pytestmark = pytest.mark.model
LIMIT_S = 120.0  # far beyond what any of this takes, on a machine that does something else as well
BLOCK_BYTES = 32 * 23040  # SmolLM2-135M: 30 layers, 3 heads of 64, keys and values of 2 bytes
FLAGS = (
    "--port=0",
    "--threads=1",
    f"--kv-cache-memory={28 * BLOCK_BYTES}",
    "--swap-space=0.1",
    "--preemption-mode=swap",
    "--max-num-seqs=3",
    "--no-enable-prefix-caching",
    "--admission-reserve=none",
    "--max-queue-wait-s=0",
)
SECRET = "xyzzy"


@pytest.fixture(scope="module")
def url(smollm2_path: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "octavo", "serve", str(smollm2_path), *FLAGS]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        log = ""
        while (match := re.search(r"listening on (http://\S+)", log)) is None:
            line = server.stderr.readline()
            assert line, f"the server did not start: {log}"
            log += line
        yield match[1]
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=LIMIT_S)
        assert server.returncode == 0
        assert "Traceback" not in rest
        assert "do not balance" not in rest
    finally:
        server.kill()
        server.wait()


def show(url: str, *args: str) -> dict:
    result = invoke(*args, "--json", "--url", url)
    assert result.exit_code == 0, result.stderr
    assert SECRET not in result.stdout
    return json.loads(result.stdout)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "the condition never came true"
        time.sleep(0.02)


def complete(url: str, number: int, answers: list[str]) -> None:
    prompt = f"{SECRET} {number}: write a very long story."
    body = {"prompt": prompt, "max_tokens": 400, "ignore_eos": True, "temperature": 0}
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", data, headers)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
        answers.append(json.load(reply)["choices"][0]["finish_reason"])


def test_commands_agree_with_a_busy_server(url):
    answers: list[str] = []
    threads = [threading.Thread(target=complete, args=(url, i, answers)) for i in range(4)]
    for thread in threads:
        thread.start()

    rows: list[dict] = []

    def has_swapped() -> bool:
        rows[:] = show(url, "ps")["requests"]
        states = [row["state"] for row in rows]
        assert states.count("running") <= 3
        return "swapped" in states

    wait_for(has_swapped)
    assert len(rows) == 4
    assert rows[0]["state"] == "running"  # the oldest is never the one to go
    assert all(10 < row["num_prompt_tokens"] < 30 for row in rows)

    table = show(url, "pmap", rows[0]["id"])
    (seq,) = table["sequences"]
    blocks = seq["blocks"]
    assert seq["num_computed_tokens"] >= rows[0]["num_computed_tokens"]
    assert sum(block["num_tokens"] for block in blocks) == seq["num_computed_tokens"]
    assert all(block["ref_count"] == 1 for block in blocks)

    summary = show(url, "blocks")
    assert summary["faults"] == summary["orphans"] == []
    assert summary["usage"]["num_blocks"] == 28
    assert summary["usage"]["num_swap_referenced"] > 0
    full = show(url, "blocks", "--full")
    in_use = sum(block["state"] == "in use" for block in full["blocks"])
    assert in_use == full["usage"]["num_referenced"]

    moment = show(url, "vmstat", "0.3", "1")
    assert moment["tok/s"] > 0
    assert moment["used"] + moment["free"] + moment["limbo"] == 28

    for thread in threads:
        thread.join(LIMIT_S)
    assert answers == ["length"] * 4
    wait_for(lambda: not show(url, "ps")["requests"])
    check_books_after(url)


def check_books_after(url: str) -> None:
    with urllib.request.urlopen(f"{url}/load", timeout=LIMIT_S) as reply:
        load = json.load(reply)
    counters = load["counters"]
    assert counters["generation_tokens_total"] == 4 * 400
    assert counters["swap_out_blocks_total"] >= counters["swap_in_blocks_total"] > 0
    assert load["num_prefill_backlog_tokens"] == load["predicted_wait_s"] == 0
    assert load["blocks"]["num_free"] == 28
    with urllib.request.urlopen(f"{url}/debug/trace", timeout=LIMIT_S) as reply:
        events = json.load(reply)["traceEvents"]
    assert any(event["name"] == "running -> swapped" for event in events)
