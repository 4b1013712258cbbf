# SPDX-License-Identifier: Apache-2.0
"""``octavo ps``, ``octavo blocks`` and ``octavo pmap``: the books of a running server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.client import URL, AsJson, Url, fetch, quote

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PS_EXAMPLES = (
    "octavo ps",
    "octavo ps --url http://127.0.0.1:8080 --json",
)
BLOCKS_EXAMPLES = (
    "octavo blocks",
    "octavo blocks --watch",
    "octavo blocks --full --json > blocks.json",
    "octavo blocks --explain 17",
)
PMAP_EXAMPLES = ("octavo pmap cmpl-5f0c", "octavo pmap cmpl-5f0c --json")

PLAIN_WIDTH = 200  # where nobody looks at a terminal: wide enough that no id is cut


def ps(url: Url = URL, as_json: AsJson = False) -> None:
    """List the requests inside a running server, oldest first, as `ps` lists processes.

    STATE: waiting (never ran), running, swapped (its blocks are in the swap pool), preempted (waits
    to compute again what it gave up). COMPUTED: tokens in the KV cache. WAITED: seconds before the
    first start. PREEMPT: how often others took its blocks. Needs the server's --debug-routes.
    """
    document = fetch(url, "/debug/requests")
    if as_json:
        print(json.dumps(document))
    elif document["requests"]:
        _show(_requests_table(document["requests"]))
    else:
        print("no requests")


def _requests_table(rows: list[dict[str, Any]]) -> Table:
    return _table(
        "REQUEST STATE CLASS PROMPT COMPUTED OUTPUT BLOCKS WAITED PREEMPT",
        (
            (
                row["id"],
                row["state"],
                row["class"],
                row["num_prompt_tokens"],
                row["num_computed_tokens"],
                row["num_output_tokens"],
                row["num_blocks"],
                f"{row['waiting_s']:.2f}",
                row["num_preemptions"],
            )
            for row in rows
        ),
        num_words=3,
    )


def pmap(
    request: Annotated[
        str,
        typer.Argument(metavar="REQUEST", help="A request's id, or the beginning: see `octavo ps`"),
    ],
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Show a request's block tables: where in the KV cache its tokens are.

    INDEX: place in the table. TOKENS: computed in that block. REF: how many tables and pins hold
    it. STATE: in use, shared when several do, or swapped: then only SWAP has a number. DIGEST: of
    the content up to there, once others can find it. SWAP: the swap block with the same content.
    Needs the server's --debug-routes.
    """
    document = fetch(url, f"/debug/requests/{quote(request)}/blocks")
    if as_json:
        print(json.dumps(document))
        return
    print(f"{document['id']}: {document['state']}, blocks of {document['block_size']} slots")
    for seq in document["sequences"]:
        num_swapped = sum(block["state"] == "swapped" for block in seq["blocks"])
        print(
            f"sequence {seq['seq_id']} (sample {seq['sample']}): {seq['state']}, "
            f"{seq['num_computed_tokens']} of {seq['num_tokens']} tokens computed, "
            f"{len(seq['blocks']) - num_swapped} blocks on the device"
            + f", {num_swapped} swapped out"
            * (num_swapped > 0)
        )
        if seq["blocks"]:
            _show(_block_table(seq["blocks"]))


def _block_table(rows: list[dict[str, Any]]) -> Table:
    return _table(
        "STATE DIGEST INDEX BLOCK TOKENS REF PINS SWAP STEP",
        (
            (
                row["state"],
                _or_dash(row["digest"]),
                _or_dash(row.get("index")),
                _or_dash(row["block_id"]),
                _or_dash(row.get("num_tokens")),
                _or_dash(row["ref_count"]),
                _or_dash(row["num_pins"]),
                _or_dash(row["swap_copy"]),
                _or_dash(row["last_use_step"]),
            )
            for row in rows
        ),
        num_words=2,
    )


def blocks(
    full: Annotated[
        bool, typer.Option("--full", help="Every block, and not only the sums.")
    ] = False,
    explain: Annotated[
        int | None,
        typer.Option(
            "--explain",
            metavar="BLOCK",
            min=0,
            help="One block: its owners, and what last happened to it.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two looks of --watch.")
    ] = 2.0,
    url: Url = URL,
    as_json: AsJson = False,
) -> None:
    """Show the blocks of the KV cache: who holds them, and whether the books balance.

    USED: some table or pin names it. CACHED: nobody's, but a prompt that begins the same finds it.
    LIMBO: given back, but a step in flight may still touch it. Faults and orphans (references that
    nothing accounts for) are bugs of octavo: report them. Needs the server's --debug-routes.
    """
    path = "/debug/blocks?format=full" if full else "/debug/blocks"
    if explain is not None:
        path = f"/debug/blocks/{explain}"
    if not watch:
        _print_blocks(fetch(url, path), as_json)
        return
    _watch(url, path, interval, as_json)


def _watch(url: str, path: str, interval_s: float, as_json: bool) -> None:
    """In place on a terminal; elsewhere one answer after the other."""
    from rich.live import Live

    console = _console()
    if as_json or not console.is_terminal:
        while True:
            _print_blocks(fetch(url, path), as_json)
            print(flush=True)
            time.sleep(interval_s)
    with Live(_render_blocks(fetch(url, path)), console=console, auto_refresh=False) as live:
        while True:
            live.update(_render_blocks(fetch(url, path)), refresh=True)
            time.sleep(interval_s)


def _print_blocks(document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(document))
    else:
        _show(_render_blocks(document))


def _render_blocks(document: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    if "history" in document:
        return Group(_block_table([document]), *_explanation(document))
    parts: list[RenderableType] = [_usage_table(document["usage"]), *_findings(document)]
    if "blocks" in document:
        parts.append(_block_table(document["blocks"]))
        if document["num_left_out"]:
            parts.append(f"{document['num_left_out']} more blocks are not shown")
    return Group(*parts)


def _usage_table(usage: dict[str, int]) -> Table:
    columns = ("num_blocks", "num_referenced", "num_cached", "num_free", "num_limbo")
    swap = ("num_swap_blocks", "num_swap_referenced", "num_swap_cached", "num_swap_free")
    rows = [
        ("device", *(usage[name] for name in columns), usage["num_shared"], usage["num_pinned"]),
        ("swap", *(usage[name] for name in swap), usage["num_swap_limbo"], "-", "-"),
    ]
    return _table("TIER BLOCKS USED CACHED FREE LIMBO SHARED PINNED", rows, num_words=1)


def _findings(document: dict[str, Any]) -> list[str]:
    refs = ", ".join(f"{count} with {ref}" for ref, count in document["ref_histogram"].items())
    lines = [f"references: {refs}"]
    lines += [
        f"holder: {holder['request_id'] or '?'} (sequence {holder['seq_id']}) "
        f"names {holder['num_blocks']} blocks"
        for holder in document["top_holders"]
    ]
    if document["orphans"]:
        lines.append(f"ORPHANS: {' '.join(map(str, document['orphans']))}")
    return lines + [f"FAULT: {fault}" for fault in document["faults"]]


def _explanation(document: dict[str, Any]) -> list[str]:
    names = document["requests"]
    lines = [
        f"owner: {names.get(str(owner), '?')} (sequence {owner})" for owner in document["owners"]
    ]
    for event in document["history"]:
        owner = event["owner"]
        by = "the cache" if owner is None else f"sequence {owner}"
        lines.append(f"step {event['step_id']}: {event['operation']} by {by}")
    return lines


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def _table(titles: str, rows: Iterable[Iterable[object]], *, num_words: int) -> Table:
    """The first ``num_words`` columns are words, the others numbers."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for idx, title in enumerate(titles.split()):
        is_word = idx < num_words
        table.add_column(title, justify="left" if is_word else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=PLAIN_WIDTH)
    return console


def _show(what: RenderableType) -> None:
    _console().print(what, soft_wrap=False)
