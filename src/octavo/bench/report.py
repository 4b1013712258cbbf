# SPDX-License-Identifier: Apache-2.0
"""A run's numbers as a document with vLLM's key names, and as a table for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from octavo.bench.metrics import METRICS, Totals, series_ms, summary_ms, totals
from octavo.bench.records import Record
from octavo.types.errors import InvalidConfig

Document = dict[str, object]

_TITLES = {
    "ttft": "Time to first token",
    "tpot": "Time per output token, without the first",
    "itl": "Between tokens",
    "e2el": "Whole answer",
}
# Lists with an entry per request: long, and so only on demand.
DETAILS = ("input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors")
_WIDTH = 44


@dataclass(frozen=True, slots=True)
class Setting:
    """What was run, as the document tells it. ``request_rate`` is a number, "inf" or "trace"."""

    date: datetime = datetime.min
    backend: str = ""
    model: str = ""
    counter: str = ""
    request_rate: float | str = "inf"
    burstiness: float = 1.0
    max_concurrency: int | None = None
    goodput_ms: Mapping[str, float] = field(default_factory=dict)
    metrics: Sequence[str] = METRICS
    percents: Sequence[float] = (99,)
    metadata: Mapping[str, str] = field(default_factory=dict)


def parse_percents(text: str) -> tuple[float, ...]:
    """``50,90,99.9``. Raises ``InvalidConfig``."""
    try:
        percents = tuple(float(one) for one in text.split(","))
    except ValueError:
        percents = ()
    if not percents or not all(0 <= one <= 100 for one in percents):
        raise InvalidConfig(f"--metric-percentiles takes numbers up to 100; got {text!r:.60}")
    return percents


def parse_metrics(text: str) -> tuple[str, ...]:
    """``ttft,e2el``. Raises ``InvalidConfig``."""
    names = tuple(name.strip() for name in text.split(","))
    unknown = sorted(set(names) - set(METRICS))
    if unknown:
        raise InvalidConfig(
            f"--percentile-metrics knows {','.join(METRICS)}; got {unknown[0]!r:.60}"
        )
    return names


def parse_metadata(pairs: Iterable[str]) -> dict[str, str]:
    """``key=value`` each. Raises ``InvalidConfig``."""
    split = [pair.partition("=") for pair in pairs]
    for name, found, _ in split:
        if not name or not found:
            raise InvalidConfig(f"--metadata takes KEY=VALUE; got {name!r:.60}")
    return {name: value for name, _, value in split}


def document(setting: Setting, records: Sequence[Record]) -> Document:
    """Raises ``ValueError`` for no records."""
    sums = totals(records, setting.goodput_ms)
    good = sums.rate(sums.num_good) if setting.goodput_ms else None
    head: Document = {
        **setting.metadata,
        "date": setting.date.strftime("%Y%m%d-%H%M%S"),
        "backend": setting.backend,
        "model_id": setting.model,
        "tokenizer_id": setting.counter,
        "num_prompts": len(records),
        "request_rate": setting.request_rate,
        "burstiness": setting.burstiness,
        "max_concurrency": setting.max_concurrency,
    }
    return head | _throughputs(sums, good) | _latencies(setting, records) | _details(records)


def _throughputs(sums: Totals, good: float | None) -> Document:
    return {
        "duration": sums.duration_s,
        "completed": sums.num_completed,
        "failed": sums.num_failed,
        "total_input_tokens": sums.num_input_tokens,
        "total_output_tokens": sums.num_output_tokens,
        "request_throughput": sums.rate(sums.num_completed),
        "request_goodput": good,
        "output_throughput": sums.rate(sums.num_output_tokens),
        "total_token_throughput": sums.rate(sums.num_input_tokens + sums.num_output_tokens),
        "max_output_tokens_per_s": sums.peak_output_tokens_per_s,
        "max_concurrent_requests": sums.peak_concurrency,
        "max_send_lag_ms": sums.max_send_lag_s * 1000,
    }


def _latencies(setting: Setting, records: Sequence[Record]) -> Document:
    series = series_ms(records)
    return {
        f"{statistic}_{name}_ms": value
        for name in setting.metrics
        for statistic, value in summary_ms(series[name], setting.percents).items()
    }


def _details(records: Sequence[Record]) -> Document:
    """Times in seconds, as vLLM keeps them; zeros stand for failures."""
    return {
        "output_tokens_counted_by_server": all(
            record.is_counted for record in records if record.error is None
        ),
        "input_lens": [record.num_prompt_tokens for record in records],
        "output_lens": [0 if r.error else r.num_output_tokens for r in records],
        "ttfts": [0.0 if r.error else r.ttft_s for r in records],
        "itls": [[] if r.error else r.itls_s for r in records],
        "generated_texts": [record.text for record in records],
        "errors": [record.error or "" for record in records],
    }


def without_details(full: Document) -> Document:
    return {name: value for name, value in full.items() if name not in DETAILS}


def file_name(setting: Setting) -> str:
    """vLLM's pattern; what a model's name has that a file name must not is replaced."""
    rate = setting.request_rate
    shown = f"{rate:g}" if isinstance(rate, float) else rate
    limit = f"-concurrency{setting.max_concurrency}" if setting.max_concurrency else ""
    model = setting.model.rsplit("/", 1)[-1]
    name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in model)
    stamp = setting.date.strftime("%Y%m%d-%H%M%S")
    return f"{setting.backend}-{shown}qps{limit}-{name[:80]}-{stamp}.json"


def table(full: Document, setting: Setting) -> str:
    """Rates and times a line each, and the first failure's own words."""
    rows: list[tuple[str, object]] = [
        ("Successful requests", full["completed"]),
        ("Failed requests", full["failed"]),
        ("Duration (s)", full["duration"]),
        ("Input tokens", full["total_input_tokens"]),
        ("Output tokens", full["total_output_tokens"]),
        ("Requests/s", full["request_throughput"]),
        ("Output tokens/s", full["output_throughput"]),
        ("Output tokens in the best second", full["max_output_tokens_per_s"]),
        ("Input and output tokens/s", full["total_token_throughput"]),
        ("Most requests at once", full["max_concurrent_requests"]),
        ("Latest start after it was due (ms)", full["max_send_lag_ms"]),
    ]
    if setting.goodput_ms:
        limits = " ".join(f"{name}:{limit:g}" for name, limit in setting.goodput_ms.items())
        rows.append((f"Requests/s within {limits}", full["request_goodput"]))
    lines = [_line(title, value) for title, value in rows]
    for name in setting.metrics:
        lines.append(f"-- {_TITLES[name]} ({name}, ms)")
        statistics = ["mean", "median", "std", *(f"p{percent:g}" for percent in setting.percents)]
        lines += [_line(f"  {one}", full[f"{one}_{name}_ms"]) for one in statistics]
    return "\n".join(lines + _remarks(full))


def _remarks(full: Document) -> list[str]:
    remarks = []
    if not full["output_tokens_counted_by_server"]:
        remarks.append("note: the server reports no usage; output tokens are counted by chunks")
    errors = full["errors"]
    assert isinstance(errors, list)
    first = next((error for error in errors if error), None)
    if first is not None:
        remarks.append(f"first failure: {first}")
    return remarks


def _line(title: str, value: object) -> str:
    shown = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{title:<{_WIDTH}}{shown:>12}"


def rate_of(text: str) -> float:
    """``inf`` or a number above 0. Raises ``InvalidConfig``."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not rate > 0:
        raise InvalidConfig(f"--request-rate must be a number above 0, inf or trace; got {text!r}")
    return rate
