# SPDX-License-Identifier: Apache-2.0
"""Benchmarks rot when nobody runs them: the smallest run must work and end in a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[2]
LIMIT_S = 120  # for a hung run, not a measurement


def test_compare_in_smoke_mode_ends_with_one_json_document(smollm2_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "compare.py"), "--smoke", "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert {"cpu", "commit", "date", "model", "threads", "repeats"} <= report["about"].keys()
    assert report["results"]
    for workload, rows in report["results"].items():
        assert rows["octavo"], workload
        assert all(tokens_per_s > 0 for tokens_per_s in rows["octavo"]), workload


@pytest.mark.parametrize("script", ["claims.py", "fairness.py", "plan_cost.py"])
def test_engine_benchmarks_run(smollm2_path: Path, script: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "engine" / script), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_servers_are_compared_in_smoke_mode(smollm2_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "serve_compare.py"), "--smoke"]
    command += ["--threads", "1", "--model", str(smollm2_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("| load | median | octavo |")
    (results,) = json.loads(done.stdout.splitlines()[-1])["results"].values()
    (result,) = results["octavo"]
    assert (result["completed"], result["failed"]) == (3, 0)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (36, 12)


def test_the_cost_of_the_client_is_measured() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "bench_client.py"), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "us of CPU per chunk" in done.stdout
