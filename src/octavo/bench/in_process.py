# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of an engine in this process: no server, no network."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from octavo.bench.metrics import percentile
from octavo.bench.records import Sample
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import StepFailed
from octavo.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.types.outputs import RequestOutput
    from octavo.types.ports import Tokenizer

LATENCY_PERCENTS = (10, 25, 50, 75, 90, 99)


def random_prompts(tokenizer: Tokenizer, length: int, count: int, seed: int) -> list[list[int]]:
    """Of ordinary tokens, evenly: specials could end an answer or begin another turn."""
    rng = random.Random(seed)
    ordinary = [one for one in range(tokenizer.vocab_size) if not tokenizer.is_special(one)]
    return [rng.choices(ordinary, k=length) for _ in range(count)]


def measure_latency(
    llm: LLM,
    prompts: Sequence[list[int]],
    params: SamplingParams | BeamSearchParams,
    num_iters: int,
    on_done: Callable[[int], None] = lambda num_tokens: None,
) -> list[float]:
    """Seconds of each of ``num_iters`` batches, from the first prompt to the last token. The prefix
    cache is emptied before each, or only the first would read its prompts."""
    latencies = []
    for _ in range(num_iters):
        llm.reset_prefix_cache()
        start_s = time.perf_counter()
        ids = [
            one for prompt in prompts for one in llm.enqueue({"prompt_token_ids": prompt}, params)
        ]
        num_tokens = sum(_checked(output) for output in llm.as_completed(ids))
        latencies.append(time.perf_counter() - start_s)
        on_done(num_tokens)
    return latencies


def latency_document(latencies: Sequence[float]) -> dict[str, object]:
    return {
        "avg_latency": statistics.fmean(latencies),
        "latencies": list(latencies),
        "percentiles": {str(percent): value for percent, value in percentiles(latencies).items()},
    }


def percentiles(latencies: Sequence[float]) -> dict[int, float]:
    return {percent: percentile(latencies, percent) for percent in LATENCY_PERCENTS}


def measure_throughput(
    llm: LLM,
    samples: Sequence[Sample],
    *,
    temperature: float = 0.0,
    on_done: Callable[[int], None] = lambda num_tokens: None,
) -> dict[str, object]:
    """All samples as one batch; every answer has its full length. Rates are per second of it."""
    num_prompt_tokens = num_output_tokens = 0
    start_s = time.perf_counter()
    ids: list[str] = []
    for sample in samples:
        params = SamplingParams(
            max_tokens=sample.num_output_tokens, temperature=temperature, ignore_eos=True
        )
        ids += llm.enqueue(sample.prompt, params)
    for output in llm.as_completed(ids):
        num_prompt_tokens += len(output.prompt_token_ids)
        num_output_tokens += _checked(output)
        on_done(output.num_output_tokens)
    elapsed_s = time.perf_counter() - start_s
    total = num_prompt_tokens + num_output_tokens
    return {
        "elapsed_time": elapsed_s,
        "num_requests": len(samples),
        "total_num_tokens": total,
        "total_output_tokens": num_output_tokens,
        "requests_per_second": len(samples) / elapsed_s,
        "tokens_per_second": total / elapsed_s,
        "output_tokens_per_second": num_output_tokens / elapsed_s,
    }


def _checked(output: RequestOutput) -> int:
    """Output tokens. Raises ``StepFailed``: half a batch has no speed."""
    if output.error is not None:
        raise StepFailed(output.error)
    return output.num_output_tokens
