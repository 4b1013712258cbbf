# SPDX-License-Identifier: Apache-2.0
"""``octavo bench``: the group of its three commands."""

from __future__ import annotations

import typer

from octavo.cli import bench_engine, bench_serve

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    epilog="Examples:\n\noctavo bench serve --num-prompts 32 --random-input-len 128 --ignore-eos"
    "\n\noctavo bench latency\n\noctavo bench throughput --num-prompts 64 --input-len 128",
)


@app.callback()
def bench() -> None:
    """Measure: a server under load (serve), a batch (latency), many requests (throughput)."""


for _name, _function, _examples in (
    ("serve", bench_serve.serve, bench_serve.EXAMPLES),
    ("latency", bench_engine.latency, bench_engine.LATENCY_EXAMPLES),
    ("throughput", bench_engine.throughput, bench_engine.THROUGHPUT_EXAMPLES),
):
    app.command(
        _name,
        epilog="\n\n".join(("Examples:", *_examples)),
        # serve takes several values after one flag, as vLLM does: it sorts them out itself.
        context_settings={"allow_extra_args": _name == "serve"},
    )(_function)
