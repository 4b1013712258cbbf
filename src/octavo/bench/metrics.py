# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a benchmark: records in, numbers out. Pure; no clock, no files."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from octavo.bench.records import Record
from octavo.types.errors import InvalidConfig

METRICS = ("ttft", "tpot", "itl", "e2el")
GOODPUT_METRICS = ("ttft", "tpot", "e2el")


def percentile(values: Sequence[float], percent: float) -> float:
    """Between two values by straight line, as numpy's default does. 0.0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def series_ms(records: Iterable[Record]) -> dict[str, list[float]]:
    """Every value of each of ``METRICS``, in milliseconds, of answers that did not fail."""
    series: dict[str, list[float]] = {name: [] for name in METRICS}
    for record in records:
        if record.error is not None:
            continue
        series["ttft"].append(record.ttft_s * 1000)
        series["e2el"].append(record.e2e_s * 1000)
        series["itl"].extend(gap * 1000 for gap in record.itls_s)
        if record.tpot_s is not None:
            series["tpot"].append(record.tpot_s * 1000)
    return series


def summary_ms(values: Sequence[float], percents: Iterable[float]) -> dict[str, float]:
    """{mean, median, std, p99, ...}; std is of the population. Zeros for no values."""
    spread = {
        "mean": statistics.fmean(values) if values else 0.0,
        "median": percentile(values, 50),
        "std": statistics.pstdev(values) if values else 0.0,
    }
    return spread | {f"p{percent:g}": percentile(values, percent) for percent in percents}


def peak_concurrency(records: Iterable[Record]) -> int:
    """Most requests open at one instant, failed ones too; one that ends as another starts does not
    count beside it."""
    edges = sorted(edge for record in records for edge in ((record.start_s, 1), (record.end_s, -1)))
    peak = now = 0
    for _, change in edges:
        now += change
        peak = max(peak, now)
    return peak


def peak_tokens_per_s(records: Iterable[Record], origin_s: float) -> float:
    """Most output tokens in one of the seconds counted from ``origin_s``.

    A chunk weighs its answer's tokens over its answer's chunks.
    """
    weights: dict[int, float] = defaultdict(float)
    for record in records:
        if record.error is None and record.token_times_s:
            weight = record.num_output_tokens / len(record.token_times_s)
            for time_s in record.token_times_s:
                weights[int(time_s - origin_s)] += weight
    return max(weights.values(), default=0.0)


def parse_goodput(wishes: Iterable[str]) -> dict[str, float]:
    """``["ttft:500", "tpot:50"]`` to limits in milliseconds. Raises ``InvalidConfig``."""
    limits: dict[str, float] = {}
    for wish in wishes:
        name, _, value = wish.partition(":")
        try:
            limit = float(value)
        except ValueError:
            limit = -1.0
        if name not in GOODPUT_METRICS or not 0 <= limit < math.inf:
            known = ", ".join(GOODPUT_METRICS)
            raise InvalidConfig(
                f"--goodput takes NAME:MILLISECONDS with a name of {known}; got {wish!r}"
            )
        limits[name] = limit
    return limits


def is_good(record: Record, limits_ms: Mapping[str, float]) -> bool:
    """Whether an answer came, within every limit. A single token has no time between tokens."""
    if record.error is not None:
        return False
    values = {
        "ttft": record.ttft_s * 1000,
        "tpot": (record.tpot_s or 0.0) * 1000,
        "e2el": record.e2e_s * 1000,
    }
    return all(values[name] <= limit for name, limit in limits_ms.items())


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts over a whole run; rates are per second of ``duration_s``.

    The duration is from when the first request was due to the last end of an answer.
    """

    duration_s: float
    num_completed: int
    num_failed: int
    num_input_tokens: int
    num_output_tokens: int
    num_good: int
    peak_concurrency: int
    peak_output_tokens_per_s: float
    max_send_lag_s: float

    def rate(self, count: float) -> float:
        return count / self.duration_s if self.duration_s > 0 else 0.0


def totals(records: Sequence[Record], limits_ms: Mapping[str, float]) -> Totals:
    """Raises ``ValueError`` for no records. Tokens are those of whole answers."""
    origin_s = min(record.due_s for record in records)
    whole = [record for record in records if record.error is None]
    return Totals(
        duration_s=max(record.end_s for record in records) - origin_s,
        num_completed=len(whole),
        num_failed=len(records) - len(whole),
        num_input_tokens=sum(record.num_prompt_tokens for record in whole),
        num_output_tokens=sum(record.num_output_tokens for record in whole),
        num_good=sum(is_good(record, limits_ms) for record in whole),
        peak_concurrency=peak_concurrency(records),
        peak_output_tokens_per_s=peak_tokens_per_s(records, origin_s),
        max_send_lag_s=max(record.start_s - record.due_s for record in records),
    )
