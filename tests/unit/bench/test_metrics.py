# SPDX-License-Identifier: Apache-2.0
"""Every expected value is worked out by hand in the comment or the literal beside it."""

from __future__ import annotations

import statistics

import pytest

from octavo.bench.metrics import (
    is_good,
    parse_goodput,
    peak_concurrency,
    peak_tokens_per_s,
    percentile,
    series_ms,
    summary_ms,
    totals,
)
from octavo.bench.records import Record
from octavo.types.errors import InvalidConfig


def record(start_s: float, *token_times_s: float, tokens: int | None = None, **fields) -> Record:
    """Due when it starts, and over with its last token."""
    made = Record(start_s, start_s, 10, token_times_s=list(token_times_s))
    made.end_s = token_times_s[-1] if token_times_s else start_s
    made.num_output_tokens = len(token_times_s) if tokens is None else tokens
    for name, value in fields.items():
        setattr(made, name, value)
    return made


# Sent at 1, tokens at 1.5, 1.75, 2.25 and 3: first after 0.5 s, then 1.5 s for three more.
FOUR = record(1.0, 1.5, 1.75, 2.25, 3.0)
ONE = record(2.0, 2.25)
FAILED = record(2.5, 2.6, error="broken", end_s=4.0)


def test_times_of_one_answer():
    assert (FOUR.ttft_s, FOUR.e2e_s, FOUR.tpot_s) == (0.5, 2.0, 0.5)
    assert FOUR.itls_s == [0.25, 0.5, 0.75]
    assert (ONE.ttft_s, ONE.e2e_s, ONE.tpot_s, ONE.itls_s) == (0.25, 0.25, None, [])


def test_tokens_that_came_together_count_as_the_server_says():
    """Eight tokens in two chunks, 1.5 s apart: seven gaps share the time."""
    chunks = record(0.0, 0.5, 2.0, tokens=8)
    assert chunks.tpot_s == pytest.approx(1.5 / 7)
    assert chunks.itls_s == [1.5]


def test_an_answer_without_text_has_its_first_token_at_its_end():
    silent = record(1.0, tokens=3, end_s=2.0)
    assert (silent.ttft_s, silent.tpot_s) == (1.0, 0.0)


def test_series_leave_out_failures_and_single_tokens():
    assert series_ms([FOUR, ONE, FAILED]) == {
        "ttft": [500, 250],
        "tpot": [500],
        "itl": [250, 500, 750],
        "e2el": [2000, 250],
    }


@pytest.mark.parametrize(
    ("percent", "value"),
    [(0, 1), (50, 2.5), (25, 1.75), (90, 3.7), (99, 3.97), (100, 4)],
)
def test_percentiles_lie_on_straight_lines(percent, value):
    assert percentile([4, 1, 3, 2], percent) == pytest.approx(value)
    assert percentile([7], percent) == 7
    assert percentile([], percent) == 0


def test_percentiles_are_numpys():
    numpy = pytest.importorskip("numpy")
    values = [0.1 * (7 * idx % 31) for idx in range(31)]
    for percent in (1, 10, 33.3, 50, 90, 99, 99.9):
        assert percentile(values, percent) == pytest.approx(numpy.percentile(values, percent))
    assert summary_ms(values, ())["std"] == pytest.approx(numpy.std(values))


def test_a_summary_names_its_percentiles():
    assert summary_ms([1, 3], [50, 99.9]) == {
        "mean": 2,
        "median": 2,
        "std": 1,
        "p50": 2,
        "p99.9": pytest.approx(2.998),
    }
    assert set(summary_ms([], [99]).values()) == {0}


def test_concurrency_is_of_instants():
    assert peak_concurrency([FOUR, ONE, FAILED]) == 2  # ONE is over at 2.25, FAILED starts at 2.5
    assert peak_concurrency([record(0, 1), record(1, 2)]) == 1
    assert peak_concurrency([record(0, 3), record(1, 3), record(2, 3)]) == 3


def test_the_best_second():
    # From 1.0 on: FOUR has 1.5, 1.75 in the first second, 2.25 in the second and 3.0 in the third.
    assert peak_tokens_per_s([FOUR], 1.0) == 2
    assert peak_tokens_per_s([FOUR, ONE, FAILED], 1.0) == 2
    assert peak_tokens_per_s([record(0, 0.5, 1.5, tokens=6)], 0) == 3
    assert peak_tokens_per_s([FAILED], 0) == 0


def test_totals_count_whole_answers_only():
    late = record(1.5, 2.0, due_s=0.5)
    sums = totals([FOUR, ONE, FAILED, late], {"ttft": 400})
    assert (sums.num_completed, sums.num_failed) == (3, 1)
    assert (sums.num_input_tokens, sums.num_output_tokens) == (30, 6)
    assert sums.duration_s == 3.5  # from 0.5, when the last was due, to 4.0
    assert sums.num_good == 1  # FOUR and late took 500 ms to their first token
    assert sums.max_send_lag_s == 1.0
    assert sums.rate(7) == 2


def test_an_instant_has_no_rate():
    assert totals([record(1.0, 1.0)], {}).rate(5) == 0


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({}, True),
        ({"ttft": 500}, True),
        ({"ttft": 499}, False),
        ({"tpot": 500, "e2el": 2000}, True),
        ({"tpot": 499, "e2el": 2000}, False),
        ({"e2el": 1999}, False),
    ],
)
def test_good_keeps_every_limit(limits, good):
    assert is_good(FOUR, limits) is good
    assert not is_good(FAILED, limits)
    assert is_good(ONE, {"tpot": 0})


def test_goodput_limits_are_read():
    assert parse_goodput(["ttft:500", "tpot:2.5"]) == {"ttft": 500, "tpot": 2.5}


@pytest.mark.parametrize("wish", ["ttft", "ttft:", "itl:5", "ttft:x", "e2el:-1", "tpot:inf", ":5"])
def test_bad_goodput_limits_are_refused(wish):
    with pytest.raises(InvalidConfig, match="ttft, tpot, e2el"):
        parse_goodput([wish])


def test_the_oracle_notices_a_percentile_by_nearest_rank():
    """A planted error: the other common definition gives another value."""
    nearest = sorted([4, 1, 3, 2])[round(0.9 * 3)]
    assert nearest != pytest.approx(3.7)
    assert statistics.stdev([1, 3]) != pytest.approx(1)
