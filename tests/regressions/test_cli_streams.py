# SPDX-License-Identifier: Apache-2.0
"""Streams that are closed, and text that their encoding cannot carry, are no tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clikit import invoke
from tiny_gguf import tiny_llama


def octavo(script: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell line in which ``$OCTAVO`` stands for the command."""
    env = {**os.environ, "OCTAVO": f"{sys.executable} -m octavo", **environ}
    return subprocess.run(["sh", "-c", script], env=env, capture_output=True, timeout=60)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_an_empty_one(closed: str) -> None:
    done = octavo(f"$OCTAVO doctor {closed}")
    assert done.returncode == 0, done.stderr.decode()


def test_a_terminal_without_the_letters_shows_question_marks(tmp_path: Path) -> None:
    writer = tiny_llama()
    writer.metadata["general.name"] = "pétite 🌍"
    file = tmp_path / "tiny.gguf"
    file.write_bytes(writer.build())
    done = octavo(f"$OCTAVO inspect {file}", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr.decode()
    assert b"p?tite ?" in done.stdout


def test_a_lone_surrogate_fails_its_line_only(tmp_path: Path) -> None:
    file, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        '{"prompt": "a", "max_tokens": 2, "id": "\\ud800"}',
        '{"prompt": "a", "\\ud800": 1}',
        '{"prompt": "a", "stop": 5}',
        '{"prompt": "a", "temperature": 1' + "0" * 400 + "}",
        '{"prompt": "a", "max_tokens": 2, "id": "é"}',
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    result = invoke("generate", str(file), "-o", str(out))
    assert result.exit_code == 1
    replies = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert ["error" in reply for reply in replies] == [False, True, True, True, False]
    assert [replies[0]["id"], replies[4]["id"]] == ["\ud800", "é"]
