# SPDX-License-Identifier: Apache-2.0
"""``octavo bench serve``: load for a server that runs, and how fast it answered."""

from __future__ import annotations

import asyncio
import json
import math
import sys
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import typer

from octavo.cli import bench_flags
from octavo.cli.bench_flags import DataFlags, local_counter, with_groups, write_json
from octavo.cli.bench_serve_flags import LoadFlags, ResultFlags, ServerFlags
from octavo.progress import BatchBar
from octavo.types.errors import InvalidConfig

if TYPE_CHECKING:
    from octavo.bench.prompts import Wish
    from octavo.bench.report import Setting
    from octavo.bench.serving import Outcome, Plan

EXAMPLES = (
    "octavo bench serve --num-prompts 32 --random-input-len 128 --random-output-len 64 "
    "--ignore-eos",
    "octavo bench serve --base-url http://127.0.0.1:8080 --backend openai-chat --request-rate 2 "
    "--num-prompts 100 --goodput ttft:500 tpot:50",
    "octavo bench serve --dataset-name azure --dataset-path azure2023_conv.csv --num-prompts 200 "
    "--time-scale 10 --max-model-len 4096 --save-result",
)


@with_groups
def serve(
    ctx: typer.Context,
    server: ServerFlags,
    data: DataFlags,
    load: LoadFlags,
    results: ResultFlags,
    tokenizer: bench_flags.Tokenizer = None,
    max_model_len: bench_flags.MaxModelLen = None,
    no_progress: bench_flags.NoProgress = False,
) -> None:
    """Measure any OpenAI-compatible server under load, over HTTP.

    Answers are streamed. The token numbers are the server's own where it reports them.
    """
    results = _share_out(ctx.args, results)
    show = _shown(results)  # before the load: a bad flag should not cost a run
    plan = _plan(server, data.wish(max_model_len), load)
    if tokenizer is not None:
        plan = replace(plan, counter=local_counter(tokenizer))
    from octavo.bench import serving

    date = datetime.now().astimezone()
    outcome = asyncio.run(
        serving.run(plan, lambda count: BatchBar(count, visible=not no_progress), _say)
    )
    setting = replace(
        show,
        date=date,
        backend=plan.backend,
        model=outcome.model,
        counter=outcome.counter_name,
        request_rate="inf" if plan.rate == math.inf else plan.rate,  # JSON has no infinity
        burstiness=plan.burstiness,
        max_concurrency=plan.max_concurrency,
    )
    _tell(outcome, setting, results)


def _plan(server: ServerFlags, wish: Wish, load: LoadFlags) -> Plan:
    from octavo.bench.http_client import Target
    from octavo.bench.serving import Plan

    host = f"[{server.host}]" if ":" in server.host else server.host
    url = f"http://{host}:{server.port}" if server.base_url is None else server.base_url
    return Plan(
        Target.parse(url, api_key=server.api_key),
        wish,
        server.backend,
        server.endpoint,
        server.served_model_name or server.model,
        request_rate=_rate(load.request_rate),
        burstiness=load.burstiness,
        time_scale=load.time_scale,
        max_concurrency=load.max_concurrency,
        num_warmups=load.num_warmups,
        timeout_s=load.timeout,
        ignore_eos=load.ignore_eos,
        extra=_extra(load),
    )


def _shown(results: ResultFlags) -> Setting:
    """What the flags say of the report; the rest is filled in after the run."""
    from octavo.bench import metrics, report

    return report.Setting(
        goodput_ms=metrics.parse_goodput(results.goodput or ()),
        metrics=report.parse_metrics(results.percentile_metrics),
        percents=report.parse_percents(results.metric_percentiles),
        metadata=report.parse_metadata(results.metadata or ()),
    )


def _say(line: str) -> None:
    print(f"note: {line}", file=sys.stderr, flush=True)


def _share_out(more: list[str], results: ResultFlags) -> ResultFlags:
    """Values after the first of ``--goodput a b`` and ``--metadata a b`` arrive in ``more``."""
    goodput, metadata = results.goodput or [], results.metadata or []
    for value in more:
        if goodput and ":" in value and "=" not in value:
            goodput = [*goodput, value]
        elif metadata and "=" in value:
            metadata = [*metadata, value]
        else:
            raise typer.BadParameter(f"{value!r} belongs to no flag")
    return replace(results, goodput=goodput, metadata=metadata)


def _rate(text: str | None) -> float | str | None:
    from octavo.bench.report import rate_of
    from octavo.bench.serving import TRACE

    return text if text is None or text == TRACE else rate_of(text)


def _extra(load: LoadFlags) -> dict[str, object]:
    fields: dict[str, object] = {"temperature": load.temperature}
    if load.top_p is not None:
        fields["top_p"] = load.top_p
    try:
        given = json.loads(load.extra_body or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"--extra-body is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise InvalidConfig("--extra-body must be a JSON object")
    return fields | given


def _tell(outcome: Outcome, setting: Setting, results: ResultFlags) -> None:
    """Exit status 1 if no request was answered."""
    from octavo.bench import report

    full = report.document(setting, outcome.records)
    print(report.table(full, setting))
    if results.save_result or results.save_detailed:
        path = results.result_dir / (results.result_filename or report.file_name(setting))
        write_json(path, full if results.save_detailed else report.without_details(full))
        print(f"results are in {path}", file=sys.stderr)
    if not full["completed"]:
        raise typer.Exit(1)
