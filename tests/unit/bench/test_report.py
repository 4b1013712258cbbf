# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from datetime import datetime

import pytest

from octavo.bench.records import Record
from octavo.bench.report import (
    Setting,
    document,
    file_name,
    parse_metadata,
    parse_metrics,
    parse_percents,
    rate_of,
    table,
    without_details,
)
from octavo.types.errors import InvalidConfig

DATE = datetime(2026, 11, 30, 21, 5, 7)
SETTING = Setting(
    DATE, "openai", "org/a model:x", "words", 2.5, max_concurrency=4, goodput_ms={"ttft": 300.0}
)
GOOD = Record(0.0, 0.0, 7, 2.0, 3, [0.25, 1.0, 2.0], "abc", None, True)
SLOW = Record(0.0, 0.0, 5, 2.0, 2, [1.0, 2.0], "de", None, True)
BAD = Record(1.0, 1.0, 9, 4.0, error="status 500: no")

# As in the files that vLLM's benchmark writes.
KEYS = """
    date backend model_id tokenizer_id num_prompts request_rate burstiness max_concurrency duration
    completed failed total_input_tokens total_output_tokens request_throughput request_goodput
    output_throughput total_token_throughput max_output_tokens_per_s max_concurrent_requests
    mean_ttft_ms median_ttft_ms std_ttft_ms p99_ttft_ms mean_tpot_ms median_tpot_ms std_tpot_ms
    p99_tpot_ms mean_itl_ms median_itl_ms std_itl_ms p99_itl_ms mean_e2el_ms median_e2el_ms
    std_e2el_ms p99_e2el_ms input_lens output_lens ttfts itls generated_texts errors
""".split()


def test_the_document_has_the_known_keys():
    full = document(SETTING, [GOOD, SLOW, BAD])
    assert set(KEYS) <= full.keys()
    assert full.keys() - set(KEYS) == {"max_send_lag_ms", "output_tokens_counted_by_server"}
    assert json.loads(json.dumps(full)) == full


def test_the_document_by_hand():
    full = document(SETTING, [GOOD, SLOW, BAD])
    assert (full["num_prompts"], full["completed"], full["failed"]) == (3, 2, 1)
    assert (full["total_input_tokens"], full["total_output_tokens"]) == (12, 5)
    assert full["duration"] == 4.0
    assert full["request_throughput"] == 0.5
    assert full["request_goodput"] == 0.25
    assert full["output_throughput"] == 1.25
    assert full["total_token_throughput"] == 4.25
    assert full["mean_ttft_ms"] == 625.0
    assert full["median_tpot_ms"] == pytest.approx((875 + 1000) / 2)
    assert full["itls"] == [[0.75, 1.0], [1.0], []]
    assert full["errors"] == ["", "", "status 500: no"]
    assert full["ttfts"] == [0.25, 1.0, 0.0]


def test_lists_are_left_out_on_demand():
    short = without_details(document(SETTING, [GOOD]))
    assert not any(isinstance(value, list) for value in short.values())


def test_only_wanted_metrics_and_percentiles_are_in():
    setting = Setting(metrics=("e2el",), percents=(50.0, 99.9), metadata={"commit": "abc"})
    full = document(setting, [GOOD])
    assert {name for name in full if name.endswith("el_ms")} == {
        f"{one}_e2el_ms" for one in ("mean", "median", "std", "p50", "p99.9")
    }
    assert "mean_ttft_ms" not in full
    assert full["commit"] == "abc"
    assert full["request_goodput"] is None


def test_the_table_tells_failures_and_guesses():
    text = table(document(SETTING, [GOOD, SLOW, BAD]), SETTING)
    assert text.endswith("first failure: status 500: no")
    assert "Requests/s within ttft:300                          0.25" in text
    assert "usage" not in text
    guessed = Record(0.0, 0.0, 7, 2.0, 3, [1.0], "abc")
    assert "counted by chunks" in table(document(SETTING, [guessed]), SETTING)
    assert "failure" not in table(document(SETTING, [GOOD]), SETTING)


def test_a_run_of_failures_has_a_report():
    full = document(SETTING, [BAD])
    assert (full["completed"], full["mean_ttft_ms"]) == (0, 0.0)
    assert "first failure" in table(full, SETTING)


def test_file_names_are_safe():
    assert file_name(SETTING) == "openai-2.5qps-concurrency4-a_model_x-20261130-210507.json"
    assert file_name(Setting(DATE, "openai", "/../..")) == "openai-infqps-..-20261130-210507.json"


def test_flags_are_read():
    assert parse_percents("50,99.9") == (50.0, 99.9)
    assert parse_metrics("ttft, e2el") == ("ttft", "e2el")
    assert parse_metadata(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    assert (rate_of("2.5"), rate_of("inf")) == (2.5, float("inf"))


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (parse_percents, "x"),
        (parse_percents, "101"),
        (parse_percents, "-1"),
        (parse_percents, "nan"),
        (parse_percents, ""),
        (parse_metrics, "ttft,x"),
        (parse_metadata, ["x"]),
        (parse_metadata, ["=x"]),
        (rate_of, "0"),
        (rate_of, "nan"),
        (rate_of, "fast"),
    ],
)
def test_bad_flags_are_refused(read, value):
    with pytest.raises(InvalidConfig, match="--"):
        read(value)
