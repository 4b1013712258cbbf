# SPDX-License-Identifier: Apache-2.0
"""``octavo vmstat``: what a running server does with its blocks, a line per interval."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from octavo.cli.client import URL, AsJson, Url, fetch

EXAMPLES = (
    "octavo vmstat",
    "octavo vmstat 2",
    "octavo vmstat 1 60 --json > minute.jsonl",
)

HEADER_EVERY = 20  # lines

# Column, the counter whose rate it is; a rate is per second.
_RATES = {
    "swpin/s": "swap_in_blocks_total",
    "swpout/s": "swap_out_blocks_total",
    "cow/s": "copied_blocks_total",
    "evict/s": "evicted_blocks_total",
    "preem/s": "preemptions_total",
    "prompt/s": "prompt_tokens_total",
    "tok/s": "generation_tokens_total",
}
_BLOCKS = {"used": "num_used", "cached": "num_cached", "free": "num_free", "limbo": "num_limbo"}
_QUEUES = {"run": "num_running", "wait": "num_waiting", "swap": "num_swapped"}
_WIDTH = 8

Row = dict[str, float]


def vmstat(
    interval: Annotated[
        float | None,
        typer.Argument(
            metavar="INTERVAL",
            min=0.1,
            help="Seconds between two lines. Default: one line, over one second.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Argument(
            metavar="COUNT",
            min=1,
            help="Lines. Default: until Ctrl-C, if there is an interval.",
            show_default=False,
        ),
    ] = None,
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Watch a running server's queues, blocks and rates, as `vmstat` does a machine's memory.

    run, wait, swap: requests in each queue. used, cached, free, limbo: blocks of the KV cache now.
    The rest is per second of the interval: blocks swapped in and out, blocks copied on write,
    cached blocks evicted, preemptions, prompt tokens, answer tokens. Swapping in what was just
    swapped out, line after line, is thrashing: lower --max-num-seqs or give more --kv-cache-memory.
    """
    pause_s = 1.0 if interval is None else interval
    num_lines = 1 if interval is None else count
    before = fetch(url, "/load")
    line = 0
    while num_lines is None or line < num_lines:
        time.sleep(pause_s)
        now = fetch(url, "/load")
        _print(row(before, now), with_header=line % HEADER_EVERY == 0, as_json=as_json)
        before, line = now, line + 1


def row(before: dict[str, Any], now: dict[str, Any]) -> Row:
    """The state of ``now``, and the rates since ``before``. A server that was started anew in the
    meantime has counted from 0."""
    seconds = now["time_s"] - before["time_s"]
    old, new = before["counters"], now["counters"]
    if seconds <= 0 or new["steps_total"] < old["steps_total"]:
        rates = dict.fromkeys(_RATES, 0.0)
    else:
        rates = {title: (new[name] - old[name]) / seconds for title, name in _RATES.items()}
    queues = {title: now[name] for title, name in _QUEUES.items()}
    return queues | {title: now["blocks"][name] for title, name in _BLOCKS.items()} | rates


def _print(values: Row, *, with_header: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(values), flush=True)
        return
    if with_header:
        print(" ".join(f"{title:>{_WIDTH}}" for title in values))
    cells = (
        f"{value:.1f}" if isinstance(value, float) else str(value) for value in values.values()
    )
    print(" ".join(f"{cell:>{_WIDTH}}" for cell in cells), flush=True)
