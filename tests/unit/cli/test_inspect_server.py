# SPDX-License-Identifier: Apache-2.0
"""``ps``, ``blocks`` and ``pmap`` against a server whose engine stands still."""

from __future__ import annotations

import json

import pytest
from operatorkit import SECRET, busy_engine, served, swapping_engine

from clikit import invoke


@pytest.fixture(scope="module")
def url():
    with served(busy_engine()) as url:
        yield url


def lines_of(*args: str) -> list[list[str]]:
    result = invoke(*args)
    assert result.exit_code == 0, result.stderr
    assert SECRET not in result.stdout
    return [line.split() for line in result.stdout.splitlines()]


def test_ps_is_a_line_per_request(url):
    header, pair, late = lines_of("ps", "--url", url)
    assert header == "REQUEST STATE CLASS PROMPT COMPUTED OUTPUT BLOCKS WAITED PREEMPT".split()
    assert pair == "pair-1 running standard 24 54 8 5 0.00 0".split()
    assert late == "late-1 waiting standard 24 0 0 0 0.25 0".split()


def test_ps_of_an_idle_server_says_so():
    engine = busy_engine()
    for request_id in ("pair-1", "late-1"):
        engine.abort(request_id)
    with served(engine) as url:
        assert lines_of("ps", "--url", url) == [["no", "requests"]]


@pytest.mark.parametrize("args", [["ps"], ["blocks"], ["blocks", "--full"], ["pmap", "pair-1"]])
def test_json_is_one_document(url, args):
    document = json.loads(invoke(*args, "--json", "--url", url).stdout)
    assert {"requests", "usage", "sequences"} & document.keys()


def test_an_address_needs_no_scheme(url):
    assert lines_of("ps", "--url", url.removeprefix("http://"))[1][0] == "pair-1"


def test_pmap_is_the_block_table(url):
    lines = lines_of("pmap", "pair", "--url", url)
    assert lines[0] == "pair-1: running, blocks of 8 slots".split()
    assert " ".join(lines[1]).endswith("running, 27 of 28 tokens computed, 4 blocks on the device")
    assert lines[2] == "STATE DIGEST INDEX BLOCK TOKENS REF PINS SWAP STEP".split()
    assert [line[0] for line in lines[3:6]] == ["shared"] * 3
    assert lines[6][:4] == ["in", "use", "-", "3"]
    assert len(lines) == 1 + 2 * (2 + 4)


def test_pmap_of_a_swapped_request():
    engine = swapping_engine()
    swapped = next(i for i, g in engine.groups.items() if g.sequences[0].status.value == "swapped")
    with served(engine) as url:
        head, sequence, _, *rows = lines_of("pmap", swapped, "--url", url)
        assert head[1] == "swapped,"
        assert " ".join(sequence).endswith(f"0 blocks on the device, {len(rows)} swapped out")
        assert [row[:4] for row in rows] == [
            ["swapped", "-", str(i), "-"] for i in range(len(rows))
        ]
        states = {line[1] for line in lines_of("ps", "--url", url)}
    assert {"swapped", "running"} <= states


def test_pmap_of_nobody_is_one_line(url):
    result = invoke("pmap", "../nobody", "--url", url)
    assert result.exit_code == 1
    assert result.stderr == "error: no request ../nobody is here (any more)\n"


def test_blocks_are_summed_up(url):
    lines = lines_of("blocks", "--url", url)
    assert lines[0] == "TIER BLOCKS USED CACHED FREE LIMBO SHARED PINNED".split()
    assert lines[1] == "device 64 5 0 59 0 3 0".split()
    assert lines[2][:2] == ["swap", "0"]
    assert lines[3] == "references: 59 with 0, 2 with 1, 3 with 2".split()
    assert len(lines) == 4 + 2  # the holders


def test_full_lists_every_block(url):
    lines = lines_of("blocks", "--full", "--url", url)
    assert sum(line[0] == "free" for line in lines) == 59
    assert sum(line[0] == "shared" for line in lines) == 3


def test_explain_tells_owners_and_history(url):
    table = json.loads(invoke("pmap", "pair", "--json", "--url", url).stdout)
    block_id = table["sequences"][0]["blocks"][0]["block_id"]
    text = invoke("blocks", "--explain", str(block_id), "--url", url).stdout
    assert "owner: pair-1 (sequence 0)" in text
    assert ": admit by sequence 0" in text


def test_faults_are_shown():
    engine = busy_engine()
    block_id = engine.blocks.table(0).ids[0]
    engine.blocks._pool.share([block_id])
    with served(engine) as url:
        text = invoke("blocks", "--url", url).stdout
    assert f"ORPHANS: {block_id}\n" in text
    assert "FAULT: " in text


def test_watch_looks_again_and_again(url, monkeypatch):
    """The third pause is Ctrl-C."""
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("octavo.cli.inspect_server.time.sleep", pause)
    result = invoke("blocks", "--watch", "--interval", "0.5", "--url", url)
    assert result.exit_code == 130
    assert pauses == [0.5] * 3
    assert result.stdout.count("TIER") == 3


def test_a_server_that_keeps_its_books_to_itself():
    with served(busy_engine(), debug_routes=False) as url:
        for args in (["ps"], ["blocks"], ["pmap", "x"]):
            result = invoke(*args, "--url", url)
            assert result.exit_code == 1
            assert "start it with --debug-routes" in result.stderr
            assert result.stderr.count("\n") == 1
