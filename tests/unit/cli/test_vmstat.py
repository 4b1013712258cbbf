# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
from operatorkit import served, swapping_engine

from clikit import invoke
from octavo.cli.vmstat import row
from octavo.engine.engine import Engine


class Pauses:
    """Stands in for ``time.sleep``: the engine goes on meanwhile, by its own clock."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.engine.step()
        self.engine.clock.advance(seconds)


@pytest.fixture
def pauses(monkeypatch) -> Pauses:
    pauses = Pauses(swapping_engine())
    monkeypatch.setattr("octavo.cli.vmstat.time.sleep", pauses)
    return pauses


def test_without_an_interval_it_is_one_line_over_a_second(pauses):
    with served(pauses.engine) as url:
        before = pauses.engine.stats()
        header, values = (line.split() for line in invoke("vmstat", "-u", url).stdout.splitlines())
    now = pauses.engine.stats()
    assert pauses.seconds == [1.0]
    shown = dict(zip(header, map(float, values), strict=True))
    assert shown["run"] == now.num_running
    assert shown["swap"] == now.num_swapped > 0
    assert shown["used"] == now.num_used_blocks
    new_tokens = now.generation_tokens_total - before.generation_tokens_total
    assert shown["tok/s"] == new_tokens > 0


def test_rates_add_up_to_the_counters(pauses):
    with served(pauses.engine) as url:
        before = pauses.engine.stats()
        result = invoke("vmstat", "0.5", "100", "--json", "-u", url)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    now = pauses.engine.stats()
    assert pauses.seconds == [0.5] * 100
    for title, name in {
        "swpin/s": "swap_in_blocks_total",
        "swpout/s": "swap_out_blocks_total",
        "preem/s": "preemptions_total",
        "tok/s": "generation_tokens_total",
    }.items():
        total = sum(one[title] for one in rows) * 0.5  # exact: halves and whole numbers
        assert total == getattr(now, name) - getattr(before, name)
    assert sum(one["swpin/s"] for one in rows) > 0
    assert rows[-1]["run"] == rows[-1]["swap"] == 0


def test_the_header_comes_again(pauses):
    with served(pauses.engine) as url:
        lines = invoke("vmstat", "1", "45", "-u", url).stdout.splitlines()
    assert [idx for idx, line in enumerate(lines) if "tok/s" in line] == [0, 21, 42]
    assert len({len(line) for line in lines}) == 1  # columns stay in line


def document(time_s: float, count: int) -> dict:
    names = "swap_in_blocks swap_out_blocks copied_blocks evicted_blocks preemptions prompt_tokens"
    counters = dict.fromkeys(
        [f"{name}_total" for name in (*names.split(), "generation_tokens", "steps")], count
    )
    queues = dict.fromkeys(["num_running", "num_waiting", "num_swapped"], 1)
    blocks = dict.fromkeys(["num_used", "num_cached", "num_free", "num_limbo"], 2)
    return {"time_s": time_s, "counters": counters, "blocks": blocks, **queues}


def test_rates_are_per_second_of_the_server():
    assert row(document(10, 100), document(14, 120))["cow/s"] == 5


@pytest.mark.parametrize(("time_s", "count"), [(14, 3), (9, 120), (10, 100)])
def test_a_server_that_started_anew_has_no_rate_yet(time_s, count):
    assert row(document(10, 100), document(time_s, count))["tok/s"] == 0


def test_no_server_is_one_line():
    result = invoke("vmstat", "-u", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: no server answers at http://127.0.0.1:1: ")
    assert result.stderr.count("\n") == 1
