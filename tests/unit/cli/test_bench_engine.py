# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from clikit import Opener, invoke


def test_latency(tmp_path):
    opener, path = Opener(), tmp_path / "new" / "out.json"
    result = invoke(
        *["bench", "latency", "--model", "m", "--input-len", "8", "--output-len", "4"],
        *["--batch-size", "2", "--num-iters-warmup", "1", "--num-iters", "3"],
        *["--output-json", str(path), "--threads", "2"],
        opener=opener,
    )
    assert result.exit_code == 0, result.output
    assert (opener.model, opener.options["threads"]) == ("m", 2)
    document = json.loads(path.read_text())
    assert len(document["latencies"]) == 3
    assert f"{document['avg_latency']:.4f}" in result.stdout
    stats = opener.assembled.engine.stats()
    assert stats.generation_tokens_total == 4 * 2 * 4  # with the warm-up


@pytest.mark.parametrize(
    "extra", [["--n", "2"], ["--n", "2", "--use-beam-search"], ["--swap-space", "1"]]
)
def test_latency_of_several_answers(extra):
    result = invoke(
        *["bench", "latency", "--input-len", "8", "--output-len", "4", "--batch-size", "1"],
        *["--num-iters-warmup", "0", "--num-iters", "1", *extra],
    )
    assert result.exit_code == 0, result.output


def test_throughput(tmp_path):
    opener, path = Opener(), tmp_path / "out.json"
    result = invoke(
        *["bench", "throughput", "--num-prompts", "3", "--input-len", "12", "--output-len", "4"],
        *["--output-json", str(path)],
        opener=opener,
    )
    assert result.exit_code == 0, result.output
    document = json.loads(path.read_text())
    assert (document["num_requests"], document["total_output_tokens"]) == (3, 12)
    assert "requests per second" in result.stdout


def test_throughput_leaves_out_what_does_not_fit(tmp_path):
    path = tmp_path / "custom.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "' + "b" * 60 + '"}\n')
    result = invoke(
        *["bench", "throughput", "--dataset-name", "custom", "--dataset-path", str(path)],
        *["--output-len", "3", "--max-model-len", "40"],
    )
    assert result.exit_code == 0, result.output
    assert "note: 1 requests" in result.stderr


def test_a_bad_data_set_is_one_line():
    result = invoke("bench", "throughput", "--dataset-name", "x")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("error: --dataset-name must be one of")
