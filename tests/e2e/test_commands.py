# SPDX-License-Identifier: Apache-2.0
"""The commands as a user runs them: processes, terminals and signals, over the real demo model."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

pytestmark = pytest.mark.model
OCTAVO = [sys.executable, "-m", "octavo"]
LIMIT_S = 120  # far beyond what any of these takes, on a machine that does something else as well


@pytest.fixture(autouse=True)
def _pulled(smollm2_path):
    """The commands below must not wait for a download."""


def run(*args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OCTAVO, *args], input=input, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_run_answers_the_sample_question_and_the_same_again():
    first = run("run")
    assert first.returncode == 0, first.stderr
    assert "basics" in first.stdout
    assert "ended by stop" in first.stderr
    again = run("run", "-n", "12").stdout.removesuffix("\n")
    assert first.stdout.startswith(again)


def test_generate_and_run_agree_and_a_bad_line_fails_alone():
    lines = [{"prompt": "1, 2, 3, 4, 5,"}, {"prompt": ""}, {"prompt": "1, 2, 3, 4, 5,"}]
    result = run("generate", "-", "-n", "9", input="\n".join(map(json.dumps, lines)))
    assert result.returncode == 1
    replies = [json.loads(line) for line in result.stdout.splitlines()]
    assert [reply["index"] for reply in replies] == [0, 1, 2]
    assert "empty" in replies[1]["error"]["message"]
    alone = run("run", "--raw", "-n", "9", lines[0]["prompt"]).stdout.removesuffix("\n")
    assert replies[0]["text"] == replies[2]["text"] == alone
    assert alone.startswith(" 6, 7")


def test_inspect_says_that_it_runs(smollm2_path):
    result = run("inspect", str(smollm2_path))
    assert result.returncode == 0, result.stderr
    assert "llama" in result.stdout
    assert "octavo runs this model" in result.stdout


class Terminal:
    """A command with a terminal around it."""

    def __init__(self, *args: str) -> None:
        self.text = ""
        self._seen = 0
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execv(OCTAVO[0], [*OCTAVO, *args])

    def send(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait_for(self, pattern: str) -> None:
        """Until ``pattern`` shows up behind what earlier calls have waited for."""
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            match = re.compile(pattern).search(self.text, self._seen)
            if match:
                self._seen = match.end()
                return
            assert time.monotonic() < deadline_s, f"no {pattern!r} in {self.text!r}"
            if select.select([self._fd], [], [], 0.2)[0]:
                self.text += self._read()

    def _read(self) -> str:
        try:
            data = os.read(self._fd, 4096)
        except OSError:  # how Linux reports the end of a terminal
            data = b""
        assert data, f"the command ended after {self.text!r}"
        return data.decode(errors="replace")

    def exit_status(self) -> int:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._fd)
        return status


def test_ctrl_c_stops_an_answer_and_not_the_chat_and_ctrl_d_leaves():
    chat = Terminal("chat", "--temperature", "0")
    chat.wait_for("Ctrl-D leaves")
    chat.wait_for("> ")
    chat.send("Write a very long story about a paper boat.\n")
    chat.wait_for("boat\\.\r?\n.*?\\w+ \\w+")  # the echo of the question, then some words
    chat.send("\x03")
    chat.wait_for("\n> ")
    chat.send("/reset\n")
    chat.wait_for("forgotten")
    chat.wait_for("> ")
    chat.send("Give three tips for learning to cook.\n")
    chat.wait_for("Practice")
    chat.wait_for("\n> ")
    chat.send("\x04")
    assert chat.exit_status() == 0
    assert "Traceback" not in chat.text


def test_ctrl_c_ends_run_with_130():
    running = Terminal("run", "Write a very long story about a paper boat.", "-n", "2000")
    running.wait_for("\\w+ \\w+ \\w+")
    running.send("\x03")
    running.wait_for("interrupted")
    assert running.exit_status() == 130
    assert "Traceback" not in running.text


def test_serve_answers_and_sigterm_ends_it_in_order():
    server = subprocess.Popen([*OCTAVO, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        url = _url_from(server)
        body = {"prompt": "1, 2, 3, 4, 5,", "max_tokens": 9, "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            assert json.load(reply)["choices"][0]["text"].startswith(" 6, 7")
        server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=LIMIT_S)
        assert server.returncode == 0
        assert "Traceback" not in rest
    finally:
        server.kill()
        server.wait()


def _url_from(server: subprocess.Popen[str]) -> str:
    log = ""
    for line in server.stderr:
        log += line
        match = re.search(r"listening on (http://\S+)", line)
        if match:
            return match[1]
    raise AssertionError(f"the server did not start: {log}")
