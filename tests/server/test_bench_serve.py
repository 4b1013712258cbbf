# SPDX-License-Identifier: Apache-2.0
"""``octavo bench serve`` against a real server over a fake engine: the counts must be its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from serverkit import ANSWER, MODEL, ReciteEngine, make_app, running

from clikit import invoke
from enginekit import make_engine
from fakes import ByteTokenizer, EchoExecutor
from octavo.bench.serving import FIRST_REQUEST
from octavo.engine.async_engine import AsyncEngine
from octavo.server.app import build_app

NUM_ANSWER_TOKENS = len(ANSWER.encode()) + 1  # and the end of sequence


@pytest.fixture
def bench(tmp_path):
    """Runs the command against an engine; returns the terminal's text and the results."""

    def run(engine: ReciteEngine, *args: str, exit_code: int = 0):
        path = tmp_path / "results" / "out.json"
        with running(make_app(engine)) as url:
            result = invoke(
                *["bench", "serve", "--base-url", url, "--input-len", "6", "--output-len", "9"],
                *["--save-detailed", "--result-dir", str(path.parent)],
                *["--result-filename", path.name, "--no-progress", *args],
            )
        assert result.exit_code == exit_code, result.output
        return result, json.loads(path.read_text())

    return run


@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_tokens_are_those_that_the_server_counted(bench, backend):
    engine = ReciteEngine()
    _, document = bench(engine, "--num-prompts", "5", "--backend", backend, "--num-warmups", "2")
    first, *others = engine.requests
    measured = others[-5:]
    assert len(others) == 7
    assert first.max_tokens == 4
    assert document["completed"] == 5
    assert document["model_id"] == MODEL
    assert sorted(document["input_lens"]) == sorted(len(r.prompt_token_ids) for r in measured)
    assert document["output_lens"] == [9] * 5
    assert document["total_output_tokens"] == 45
    assert document["output_tokens_counted_by_server"] is True
    assert all(text == ANSWER[: len(text)] for text in document["generated_texts"])


def test_the_counts_are_in_the_books_of_a_real_engine(tmp_path):
    """Everything that the client counts, and the first request, is everything that was computed."""
    engine = AsyncEngine(make_engine(EchoExecutor()))
    engine.start()
    try:
        with running(build_app(engine, ByteTokenizer(), model_name="echo")) as url:
            result = invoke(
                *["bench", "serve", "--base-url", url, "--num-prompts", "12", "--input-len", "3"],
                *["--output-len", "7", "--random-range-ratio", "0.5", "--ignore-eos"],
                *["--save-detailed", "--result-dir", str(tmp_path), "--result-filename", "r.json"],
            )
        stats = engine.stats()
    finally:
        engine.shutdown()
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "r.json").read_text())
    first = FIRST_REQUEST.num_output_tokens
    assert document["completed"] == 12
    assert document["total_output_tokens"] + first == stats.generation_tokens_total
    assert document["total_input_tokens"] + len(FIRST_REQUEST.prompt) == stats.prompt_tokens_total
    assert set(document["output_lens"]) <= set(range(4, 11))
    assert len(set(document["output_lens"])) > 1


def test_answers_may_end_before_their_limit(bench):
    _, document = bench(ReciteEngine(), "--num-prompts", "3", "--output-len", "100")
    assert document["output_lens"] == [NUM_ANSWER_TOKENS] * 3
    assert document["generated_texts"] == [ANSWER] * 3
    assert all(len(gaps) < NUM_ANSWER_TOKENS for gaps in document["itls"])
    assert all(ttft > 0 for ttft in document["ttfts"])


def test_a_request_at_a_time(bench):
    _, document = bench(ReciteEngine(), "--num-prompts", "4", "--max-concurrency", "1")
    assert document["max_concurrent_requests"] == 1
    assert document["max_concurrency"] == 1


def test_failures_are_counted_and_the_first_is_shown(bench):
    engine = ReciteEngine(fail_after=5)  # the first request ends after 4
    result, document = bench(engine, "--num-prompts", "3", exit_code=1)
    assert (document["completed"], document["failed"]) == (0, 3)
    assert "first failure: " in result.stdout
    assert "Failed requests" in result.stdout
    assert all(document["errors"])


def test_the_report_knows_goodput_and_percentiles(bench):
    result, document = bench(
        ReciteEngine(),
        *["--num-prompts", "3", "--request-rate", "200", "--burstiness", "0.5"],
        *["--goodput", "ttft:60000", "tpot:60000", "--metadata", "commit=abc", "run=2"],
        *["--percentile-metrics", "ttft,e2el", "--metric-percentiles", "50,99.9"],
    )
    assert document["request_goodput"] == document["request_throughput"]
    assert (document["request_rate"], document["burstiness"]) == (200.0, 0.5)
    assert (document["commit"], document["run"]) == ("abc", "2")
    assert "p99.9_e2el_ms" in document
    assert "mean_itl_ms" not in document
    assert "Requests/s within ttft:60000 tpot:60000" in result.stdout


def test_a_trace_sets_lengths_and_times(bench, tmp_path):
    engine, path = ReciteEngine(), tmp_path / "trace.jsonl"
    rows = [(0, 12, 3), (100, 7, 5), (30, 5000, 5)]
    path.write_text(
        "\n".join(
            json.dumps({"timestamp": at, "input_length": prompt, "output_length": answer})
            for at, prompt, answer in rows
        )
    )
    trace = ["--dataset-name", "mooncake", "--dataset-path", str(path), "--output-len", "4"]
    result, document = bench(engine, *trace, "--max-model-len", "1000", "--time-scale", "0.5")
    assert document["request_rate"] == "trace"
    assert document["output_lens"] == [4, 4]
    assert document["duration"] >= 0.05
    assert "2 requests instead of 1000" in result.stderr


@pytest.mark.model
def test_a_local_tokenizer_counts(bench, smollm2_path: Path):
    _, document = bench(ReciteEngine(), "--num-prompts", "2", "--tokenizer", str(smollm2_path))
    assert document["tokenizer_id"] == f"the tokenizer of {smollm2_path}"


def test_a_server_that_is_not_there_is_one_line():
    result = invoke("bench", "serve", "--port", "1", "--num-prompts", "1")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "no server answers at http://127.0.0.1:1" in result.stderr


def test_an_unknown_model_is_the_servers_word():
    with running(make_app()) as url:
        result = invoke("bench", "serve", "--base-url", url, "-m", "gpt-9", "--num-prompts", "1")
    assert result.exit_code == 1
    assert "fails the first request: status 404" in result.stderr
    assert "gpt-9" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--goodput", "x:5"], "--goodput takes"),
        (["--metric-percentiles", "x"], "--metric-percentiles takes"),
        (["--backend", "grpc"], "--backend must be one of openai, openai-chat"),
        (["--endpoint", "x y"], "--endpoint must be like"),
        (["--request-rate", "trace"], "needs a data set with times"),
        (["--request-rate", "5", "--burstiness", "0"], "--burstiness must be"),
        (["--request-rate", "fast"], "--request-rate must be"),
        (["--extra-body", "[1]"], "--extra-body must be a JSON object"),
        (["--extra-body", "{"], "--extra-body is no JSON"),
        (["--dataset-name", "azure"], "give --dataset-path"),
        (["--base-url", "ftp://x"], "--base-url must be"),
    ],
)
def test_bad_flags_are_refused_before_anything_runs(args, said):
    result = invoke("bench", "serve", *args)
    assert result.exit_code == 1
    assert said in result.stderr


def test_stray_words_are_refused():
    result = invoke("bench", "serve", "tpot:50")
    assert result.exit_code == 2
    assert "belongs to no flag" in result.stderr
