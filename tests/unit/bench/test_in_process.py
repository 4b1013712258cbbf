# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from llmkit import make_llm
from octavo.bench.in_process import (
    latency_document,
    measure_latency,
    measure_throughput,
    random_prompts,
)
from octavo.bench.records import Sample
from octavo.types.errors import StepFailed
from octavo.types.sampling_params import SamplingParams

PARAMS = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)


def test_random_prompts_hold_no_specials():
    llm, assembled = make_llm()
    prompts = random_prompts(llm.get_tokenizer(), 40, 3, seed=1)
    assert [len(prompt) for prompt in prompts] == [40] * 3
    assert prompts == random_prompts(llm.get_tokenizer(), 40, 3, seed=1)
    assert not any(assembled.tokenizer.is_special(one) for prompt in prompts for one in prompt)
    llm.close()


def test_each_iteration_reads_its_prompts_anew():
    llm, assembled = make_llm()
    done: list[int] = []
    prompts = random_prompts(llm.get_tokenizer(), 20, 2, seed=1)
    latencies = measure_latency(llm, prompts, PARAMS, 3, done.append)
    assert len(latencies) == 3
    assert min(latencies) > 0
    assert done == [10, 10, 10]
    assert assembled.engine.stats().computed_tokens_total >= 3 * 2 * (20 + 4)
    llm.close()


def test_the_document_of_latencies():
    document = latency_document([1.0, 2.0, 3.0, 4.0])
    assert (document["avg_latency"], document["latencies"]) == (2.5, [1.0, 2.0, 3.0, 4.0])
    assert document["percentiles"] == pytest.approx(
        {"10": 1.3, "25": 1.75, "50": 2.5, "75": 3.25, "90": 3.7, "99": 3.97}
    )


def test_throughput_counts_what_the_engine_did():
    llm, assembled = make_llm()
    samples = [Sample("a b c", 5, 3), Sample("d", 1, 7)]
    document = measure_throughput(llm, samples)
    stats = assembled.engine.stats()
    assert document["total_output_tokens"] == 10 == stats.generation_tokens_total
    assert document["total_num_tokens"] == 10 + stats.prompt_tokens_total
    assert document["num_requests"] == 2
    elapsed_s = document["elapsed_time"]
    assert document["requests_per_second"] == pytest.approx(2 / elapsed_s)
    assert document["tokens_per_second"] == pytest.approx(document["total_num_tokens"] / elapsed_s)
    llm.close()


def test_a_failure_has_no_speed():
    llm, _ = make_llm(fail_steps=(1,))
    with pytest.raises(StepFailed):
        measure_throughput(llm, [Sample("a", 1, 7)])
    llm.close()
