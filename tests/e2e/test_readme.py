# SPDX-License-Identifier: Apache-2.0
"""The programs and commands of README and docs, as they stand (only the port is changed)."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
START_S_MAX = 60  # a limit for a hung start, not a measurement


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def octavo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "octavo", *arguments]


@pytest.fixture(scope="module")
def server_url(smollm2_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = octavo("serve", "--model", "smollm2-135m", "--port", str(port))
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(url, server)
        yield url
    finally:
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=30)
        assert server.returncode == 0, errors
        assert "Traceback" not in errors


def wait_until_healthy(url: str, server: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_S_MAX
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the server did not start; exit code {server.poll()}")


def test_the_python_program_runs(smollm2_path: Path):
    program = next(block for block in blocks("python") if "from octavo" in block)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "The capital of France is" in done.stdout
    assert len(program.strip().splitlines()) <= 14


def curl(server_url: str, path: str) -> dict:
    """The reply to the one command that asks for ``path``."""
    (command,) = [block for block in blocks("sh") if f"8000{path} " in block]
    command = command.replace("http://127.0.0.1:8000", server_url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    return json.loads(done.stdout)


def test_every_curl_command_is_one_of_these():
    assert len(blocks("sh")) == 4


def test_the_chat_command_answers(server_url: str):
    reply = curl(server_url, "/v1/chat/completions")
    assert reply["choices"][0]["message"]["content"]
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_the_responses_command_answers(server_url: str):
    reply = curl(server_url, "/v1/responses")
    assert reply["output"][0]["content"][0]["text"]
    assert reply["usage"]["output_tokens"] <= 32


def test_the_messages_command_answers(server_url: str):
    reply = curl(server_url, "/v1/messages")
    assert reply["content"][0]["text"]
    assert reply["stop_reason"] in ("end_turn", "max_tokens")


def test_the_tokenize_command_answers(server_url: str):
    reply = curl(server_url, "/tokenize")
    assert reply["count"] == len(reply["tokens"]) > 0


@pytest.mark.parametrize("page", ["chat", "structured-output"])
def test_the_command_of_a_page_answers_in_the_form_that_it_asks_for(server_url: str, page: str):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    (command,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    command = command.replace("http://127.0.0.1:8000", server_url)
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    message = json.loads(done.stdout)["choices"][0]["message"]
    if page == "chat":
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]).keys() == {"city"}
    else:
        assert json.loads(message["content"]).keys() == {"name", "age"}


def test_the_openai_program_streams(server_url: str):
    program = next(block for block in blocks("python") if "from openai" in block)
    program = program.replace("http://127.0.0.1:8000", server_url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_run_answers_and_keeps_stdout_clean(smollm2_path: Path):
    arguments = ("run", "--temperature", "0", "--max-tokens", "8", "--raw", "The quick brown fox")
    done = subprocess.run(octavo(*arguments), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == " with a quick brown bear.\n\n"
    assert "token" in done.stderr


def test_generate_keeps_order_and_reports_bad_lines(smollm2_path: Path, tmp_path: Path):
    lines = [{"prompt": "One, two,", "max_tokens": 4}, {"prompt": 7}, {"prompt": "A", "n": 0}]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = octavo("generate", str(source), "-o", str(target))
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    replies = [json.loads(line) for line in target.read_text().splitlines()]
    assert len(replies) == 3, done.stderr
    assert "error" not in replies[0]
    assert "error" in replies[1]
    assert "error" in replies[2]


def test_inspect_says_that_the_demo_model_runs(smollm2_path: Path):
    done = subprocess.run(octavo("inspect", str(smollm2_path)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "llama" in done.stdout
