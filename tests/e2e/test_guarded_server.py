# SPDX-License-Identifier: Apache-2.0
"""``octavo serve`` as operators start it: keys, limits, a JSON log; commands that ask it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tiny_gguf import tiny_llama

OCTAVO = (sys.executable, "-m", "octavo")
LIMIT_S = 120
ALICE, ENV = "sk-Numbat-alice-1", "sk-Numbat-env-2"
PROMPT = "tobeornottobe"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_llama().build())
    return path


def test_a_guarded_server_lets_in_limits_and_logs(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"alice {ALICE} requests_per_minute=1\n")
    keys.chmod(0o600)
    config = tmp_path / "octavo.toml"
    config.write_text(f'[serve]\napi_key_file = "{keys}"\nlog_format = "json"\nthreads = 1\n')
    environment = {**os.environ, "OCTAVO_API_KEY": ENV}
    command = [*OCTAVO, "serve", str(model), "--port", "0", "--config", str(config)]
    server = subprocess.Popen(
        [*command, "--drain-timeout-s", "5", "--kv-cache-memory", "1MiB"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    log: list[dict] = []
    try:
        url = _url_from(server, log)
        body = {"prompt": PROMPT, "max_tokens": 4, "ignore_eos": True}
        with httpx.Client(base_url=url, trust_env=False, timeout=LIMIT_S) as client:
            statuses = [
                client.post("/v1/completions", json=body, headers=headers).status_code
                for headers in ({}, {"x-api-key": ALICE}, {"authorization": f"Bearer {ALICE}"})
            ]
        assert statuses == [401, 200, 429]
        assert _ask(url, environment).returncode == 0
        refused = _ask(url, {**os.environ, "OCTAVO_API_KEY": "sk-Numbat-wrong"})
        assert refused.returncode == 1
        assert "wants an API key; set OCTAVO_API_KEY" in refused.stderr
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=LIMIT_S)
        log += [json.loads(line) for line in rest.splitlines()]
        assert server.returncode == 0
    finally:
        server.kill()
        server.wait()
    done = [line for line in log if line.get("status") == 200 and line["method"] == "POST"]
    assert [(line["user"], line["completion_tokens"]) for line in done] == [("alice", 4)]
    assert log[-1]["message"] == "stopped"
    assert not re.search(f"Numbat|{PROMPT}", json.dumps(log))


def _ask(url: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [*OCTAVO, "ps", "--url", url, "--json"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def _url_from(server: subprocess.Popen[str], log: list[dict]) -> str:
    assert server.stderr is not None
    for line in server.stderr:
        if not line.startswith("{"):  # the bars of the loading
            continue
        log.append(json.loads(line))
        match = re.search(r"listening on (http://\S+)", log[-1]["message"])
        if match:
            return match[1]
    raise AssertionError(f"the server did not start: {log}")
