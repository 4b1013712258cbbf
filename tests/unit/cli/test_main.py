# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import octavo
from clikit import invoke
from octavo.cli.main import app

COMMANDS = ["run", "chat", "generate", "serve", "models", "pull", "inspect", "doctor"]
COMMANDS += ["ps", "blocks", "pmap", "vmstat", "bench"]
PLAIN = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}


def run(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "octavo", *args],
        env={**PLAIN, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_version():
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"octavo {octavo.__version__}\n")


def test_help_lists_every_command():
    result = run("--help")
    assert result.returncode == 0
    assert all(command in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", [*COMMANDS, "bench serve", "bench latency", "bench throughput"])
def test_the_help_of_each_command_has_examples_of_that_command(command):
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert f"octavo {command}" in result.stdout.split("Examples:")[1]


def test_a_known_error_is_one_line_and_exit_status_1(tmp_path):
    result = run("pull", "nonsense", OCTAVO_CACHE=str(tmp_path))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: no model is called 'nonsense'")
    assert result.stderr.count("\n") == 1


def test_debug_shows_the_traceback(tmp_path):
    result = run("pull", "nonsense", OCTAVO_CACHE=str(tmp_path), OCTAVO_DEBUG="1")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("args", [["--nope"], ["run", "--max-tokens", "0"], ["nope"], ["generate"]])
def test_wrong_usage_is_exit_status_2(args):
    assert invoke(*args).exit_code == 2


def test_a_bad_value_of_the_environment_is_an_error_like_any_other(tmp_path):
    result = run("pull", "nonsense", OCTAVO_CACHE=str(tmp_path), OCTAVO_DEBUG="maybe")
    assert result.returncode == 1


@pytest.mark.parametrize(("args", "status"), [(["models"], 141), (["--help"], 1)])
def test_a_reader_that_went_away_is_no_error_message(args, status, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "octavo", *args],
        env={**PLAIN, "OCTAVO_CACHE": str(tmp_path)},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (status, "")


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], env=PLAIN, capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


HEAVY = {"fastapi", "huggingface_hub", "jinja2", "numpy", "octavo._native", "tokenizers", "uvicorn"}


def test_import_octavo_loads_no_third_party_code():
    assert not loaded_by("import octavo") & (HEAVY | {"rich", "typer", "asyncio"})


def test_the_command_line_loads_what_is_heavy_only_when_it_is_needed():
    loaded = loaded_by("import octavo.cli.main")
    assert "typer" in loaded  # the test can see what is loaded
    assert not loaded & HEAVY


def test_cold_import_takes_less_than_100_ms():
    """By the interpreter's own clock, best of three: another process may take the CPU meanwhile."""
    times_us = []
    for _ in range(3):
        result = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import octavo"],
            env=PLAIN,
            capture_output=True,
            text=True,
            check=True,
        )
        (line,) = [one for one in result.stderr.splitlines() if one.endswith("| octavo")]
        times_us.append(int(line.split("|")[1]))
    assert min(times_us) < 100_000
