# SPDX-License-Identifier: Apache-2.0
"""The flags of ``octavo bench serve``, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from octavo.cli.bench_flags import LOAD_PANEL, RESULT_PANEL, option

SERVER_PANEL = "Server"


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """Which server, and how it is spoken to."""

    base_url: Annotated[
        str | None,
        option(
            "--base-url",
            metavar="URL",
            panel=SERVER_PANEL,
            help="The server, with or without /v1. Default: http://HOST:PORT.",
        ),
    ] = None
    host: Annotated[str, option("--host", panel=SERVER_PANEL, help="Its address.")] = "127.0.0.1"
    port: Annotated[
        int, option("--port", min=1, max=65535, panel=SERVER_PANEL, help="Its port.")
    ] = 8000
    backend: Annotated[
        str,
        option(
            "--backend",
            metavar="NAME",
            panel=SERVER_PANEL,
            help="openai (completions; vllm is the same) or openai-chat: how requests are spelled.",
        ),
    ] = "openai"
    endpoint: Annotated[
        str | None,
        option(
            "--endpoint",
            metavar="PATH",
            panel=SERVER_PANEL,
            help="Default: /v1/completions or /v1/chat/completions, by the backend.",
        ),
    ] = None
    model: Annotated[
        str | None,
        option(
            "--model",
            "-m",
            metavar="NAME",
            panel=SERVER_PANEL,
            help="As the server calls it. Default: the first that it lists.",
        ),
    ] = None
    served_model_name: Annotated[
        str | None,
        option("--served-model-name", metavar="NAME", panel=SERVER_PANEL, help="The same, first."),
    ] = None
    api_key: Annotated[
        str | None,
        option(
            "--api-key",
            metavar="KEY",
            envvar="OPENAI_API_KEY",
            panel=SERVER_PANEL,
            help="Sent as a bearer token. Other users of this machine see flags; not variables.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class LoadFlags:
    """When requests are sent, and what is in them."""

    request_rate: Annotated[
        str | None,
        option(
            "--request-rate",
            metavar="RATE",
            panel=LOAD_PANEL,
            help="Requests per second on average, at random times; inf: all at once; trace: when "
            "the data set says. Default: trace for mooncake and azure, else inf.",
        ),
    ] = None
    burstiness: Annotated[
        float,
        option(
            "--burstiness",
            metavar="X",
            panel=LOAD_PANEL,
            help="Shape of the gaps: 1 is a Poisson process, below 1 comes in bursts, above 1 "
            "evenly.",
        ),
    ] = 1.0
    time_scale: Annotated[
        float,
        option(
            "--time-scale",
            metavar="X",
            panel=LOAD_PANEL,
            help="A trace's times are multiplied by it: 10 replays ten times as slowly.",
        ),
    ] = 1.0
    max_concurrency: Annotated[
        int | None,
        option(
            "--max-concurrency",
            metavar="N",
            min=1,
            panel=LOAD_PANEL,
            help="Requests that are open together; more wait here, outside of their times.",
        ),
    ] = None
    num_warmups: Annotated[
        int,
        option(
            "--num-warmups",
            metavar="N",
            min=0,
            panel=LOAD_PANEL,
            help="Requests before, as long but other words, not measured.",
        ),
    ] = 0
    timeout: Annotated[
        float,
        option(
            "--timeout",
            metavar="SECONDS",
            min=0.001,
            panel=LOAD_PANEL,
            help="A request that takes longer has failed.",
        ),
    ] = 6 * 3600.0
    ignore_eos: Annotated[
        bool,
        option(
            "--ignore-eos",
            panel=LOAD_PANEL,
            help="Ask for answers of full length. Left out, with a note, if the server refuses it.",
        ),
    ] = False
    temperature: Annotated[
        float, option("--temperature", metavar="X", min=0, panel=LOAD_PANEL, help="Of all answers.")
    ] = 0.0
    top_p: Annotated[
        float | None, option("--top-p", metavar="P", panel=LOAD_PANEL, help="Of all answers.")
    ] = None
    extra_body: Annotated[
        str | None,
        option(
            "--extra-body",
            metavar="JSON",
            panel=LOAD_PANEL,
            help="""More fields of every request, like '{"top_k": 1}'.""",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ResultFlags:
    """What is shown and written."""

    percentile_metrics: Annotated[
        str,
        option(
            "--percentile-metrics",
            metavar="NAMES",
            panel=RESULT_PANEL,
            help="Which times are shown: ttft (first token), tpot (per token after it), itl "
            "(between two), e2el (whole answer).",
        ),
    ] = "ttft,tpot,itl,e2el"
    metric_percentiles: Annotated[
        str,
        option(
            "--metric-percentiles",
            metavar="NUMBERS",
            panel=RESULT_PANEL,
            help="Which percentiles, like 50,90,99.",
        ),
    ] = "99"
    goodput: Annotated[
        list[str] | None,
        option(
            "--goodput",
            metavar="NAME:MS...",
            panel=RESULT_PANEL,
            help="Count the requests per second that kept all limits, like ttft:500 tpot:50.",
        ),
    ] = None
    metadata: Annotated[
        list[str] | None,
        option(
            "--metadata",
            metavar="KEY=VALUE...",
            panel=RESULT_PANEL,
            help="Copied into the results.",
        ),
    ] = None
    save_result: Annotated[
        bool, option("--save-result", panel=RESULT_PANEL, help="Write a JSON file.")
    ] = False
    save_detailed: Annotated[
        bool,
        option(
            "--save-detailed", panel=RESULT_PANEL, help="With the lists per request, and texts."
        ),
    ] = False
    result_dir: Annotated[
        Path, option("--result-dir", metavar="DIR", panel=RESULT_PANEL, help="Where to.")
    ] = Path()
    result_filename: Annotated[
        str | None,
        option(
            "--result-filename",
            metavar="NAME",
            panel=RESULT_PANEL,
            help="Default: from backend, rate, model and time.",
        ),
    ] = None
