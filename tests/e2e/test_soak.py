# SPDX-License-Identifier: Apache-2.0
"""A short run of tools/soak.py: clients come and go, and the books balance afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serving import serving
from soak import Report, has_ended, soak

pytestmark = pytest.mark.model

SECONDS = 8.0


def test_the_books_balance_when_everybody_has_left(smollm2_path: Path):
    flags = ("--served-model-name", "soak", "--max-model-len", "512", "--kv-cache-memory", "32MiB")
    with serving(smollm2_path, *flags) as served:
        load = soak(served, seconds=SECONDS, num_clients=64, num_sequential=100)
        report = asyncio.run(load)
    assert report.problems == []
    assert report.counters["abort"] > 10, report  # else nobody has left
    assert report.outcomes["complete"] > 110, report
    for outcome in ("left", "late"):
        assert report.outcomes[outcome] > 5, report


def test_a_problem_is_reported():
    report = Report()
    report.check(True, "no")
    report.check(False, "3 blocks in use")
    assert report.problems == ["3 blocks in use"]
    assert not has_ended('data: {"choices": []}')
    assert has_ended("event: message_stop\ndata: {}")
