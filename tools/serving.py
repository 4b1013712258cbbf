# SPDX-License-Identifier: Apache-2.0
"""``octavo serve`` as a process of its own, for tests and tools."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from octavo.server.run import bind

START_S_MAX = 60  # a limit for a hung start, not a measurement
END_S_MAX = 60


class Served(NamedTuple):
    url: str
    pid: int


@contextmanager
def serving(model: Path | str, *flags: str) -> Iterator[Served]:
    """A server that is ready, and that must end well."""
    with bind(port=0) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "octavo", "serve", str(model), "--port", str(port), *flags]
    # A file, for a pipe that nobody reads is full after some hundred requests, and then all wait.
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until_ready(url, process)
            yield Served(url, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(END_S_MAX)
            log.seek(0)
            errors = log.read()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors, errors


def wait_until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health/ready", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"the server did not start; exit code {process.poll()}")
