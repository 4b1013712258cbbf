# SPDX-License-Identifier: Apache-2.0
"""GET /metrics: the engine's snapshot under the family names that vLLM's dashboards look for.

A scrape builds its own registry around one frozen snapshot, so all of its numbers are of one
moment, and nothing is ever registered in the process-wide registry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from fastapi import Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from octavo.metrics.engine_metrics import EMPTY, EngineStats
from octavo.metrics.histogram import HistogramSnapshot

# What is counted of each request when it ends, under the names that dashboards look for.
_REQUEST_HISTOGRAMS = {
    "prefill_s": ("vllm:request_prefill_time_seconds", "First step to first token."),
    "decode_s": ("vllm:request_decode_time_seconds", "First token to last token."),
    "inference_s": ("vllm:request_inference_time_seconds", "First step to last token."),
    "s_per_output_token": (
        "vllm:request_time_per_output_token_seconds",
        "Mean of a request, after its first token.",
    ),
    "prompt_tokens": ("vllm:request_prompt_tokens", "Prompt tokens."),
    "computed_prompt_tokens": (
        "vllm:request_prefill_kv_computed_tokens",
        "Prompt tokens that were not found in the cache.",
    ),
    "output_tokens": ("vllm:request_generation_tokens", "Tokens of all samples."),
    "output_tokens_max": (
        "vllm:request_max_num_generation_tokens",
        "Tokens of the longest sample.",
    ),
    "max_tokens": ("vllm:request_params_max_tokens", "Tokens that were asked for at most."),
    "n": ("vllm:request_params_n", "Samples that were asked for."),
    "preemptions": ("octavo:request_num_preemptions", "Preemptions."),
}

ByName = GaugeMetricFamily | CounterMetricFamily


def response(
    stats: EngineStats, model_name: str, accept: str = "", server: Collector | None = None
) -> Response:
    """The text format, or OpenMetrics for a scraper whose ``accept`` header asks for it.

    ``server`` adds what is not the engine's.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatsCollector(stats, model_name))
    if server is not None:
        registry.register(server)
    encode, content_type = choose_encoder(accept)
    return Response(encode(registry), headers={"content-type": content_type})


class StatsCollector(Collector):
    """One snapshot as metric families, each labelled with the model's name and the engine index."""

    def __init__(self, stats: EngineStats, model_name: str) -> None:
        self._stats = stats
        self._labels = {"model_name": model_name, "engine": "0"}

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._cache()
        yield from self._counters()
        yield from self._histograms()

    def _queues(self) -> Iterator[Metric]:
        stats = self._stats
        yield self._gauge("vllm:num_requests_running", "Requests in the batch.", stats.num_running)
        yield self._gauge("vllm:num_requests_waiting", "Requests in the queue.", stats.num_waiting)
        yield self._gauge("vllm:num_requests_swapped", "Requests swapped out.", stats.num_swapped)
        text = "Age of the oldest request in the queue, in seconds; 0 when there is none."
        yield self._gauge("octavo:oldest_waiting_seconds", text, stats.oldest_waiting_s)
        text = "Age of the oldest request that is swapped out, in seconds."
        yield self._gauge("octavo:oldest_swapped_seconds", text, stats.oldest_swapped_s)
        text = "Plans that the executor has."
        yield self._gauge("octavo:steps_in_flight", text, stats.num_inflight_steps)
        text = "Prompt tokens that a step may compute, as the latency targets have it."
        yield self._gauge("octavo:prefill_budget_tokens", text, stats.prefill_budget)
        text = "1 when there is work and no progress for longer than watchdog_s."
        yield self._gauge("octavo:stuck", text, stats.is_stuck)
        text = "Requests that wait, by what they wait for."
        for prefix in ("octavo", "vllm"):
            name = f"{prefix}:num_requests_waiting_by_reason"
            reasons = stats.waiting_by_reason
            yield self._by_name(GaugeMetricFamily, name, text, "reason", reasons)

    def _cache(self) -> Iterator[Metric]:
        stats = self._stats
        text = "Share of KV blocks in use, 0 to 1."
        yield self._gauge("vllm:kv_cache_usage_perc", text, stats.kv_usage)
        yield self._gauge("vllm:gpu_cache_usage_perc", f"{text} Older name.", stats.kv_usage)
        config = {"block_size": stats.block_size, "num_gpu_blocks": stats.num_blocks}
        labels = {name: str(value) for name, value in config.items()}
        yield self._gauge("vllm:cache_config_info", "Settings of the KV cache.", 1, labels)
        states = {
            "free": stats.num_free_blocks,
            "cached": stats.num_cached_blocks,
            "limbo": stats.num_limbo_blocks,
            "used": stats.num_used_blocks,
        }
        text = "KV blocks by state; cached are free with content, limbo waits for a step in flight."
        yield self._by_name(GaugeMetricFamily, "octavo:kv_blocks", text, "state", states)
        text = "KV blocks in use by more than one sequence."
        yield self._gauge("octavo:kv_blocks_shared", text, stats.num_shared_blocks)
        yield self._gauge("octavo:kv_blocks_pinned", "KV blocks pinned.", stats.num_pinned_blocks)
        text = "Entries of all block tables for each block in use."
        yield self._gauge("octavo:kv_sharing_ratio", text, stats.sharing_ratio)
        text = "KV blocks kept back for running sequences."
        yield self._gauge("octavo:kv_blocks_promised", text, stats.num_promised_blocks)
        text = "Token slots reserved and empty: the rest of last blocks."
        yield self._gauge("octavo:kv_waste_slots", text, stats.num_waste_slots)
        text = "Share of swap blocks in use, 0 to 1."
        yield self._gauge("vllm:cpu_cache_usage_perc", text, stats.swap_usage)

    def _counters(self) -> Iterator[Metric]:
        stats = self._stats
        for name, text, value in (
            ("vllm:prompt_tokens", "Prompt tokens of requests.", stats.prompt_tokens_total),
            ("vllm:generation_tokens", "Tokens generated.", stats.generation_tokens_total),
            ("vllm:num_preemptions", "Preemptions.", stats.preemptions_total),
            ("octavo:steps", "Steps run.", stats.steps_total),
            ("octavo:failed_steps", "Steps that failed.", stats.failed_steps_total),
            ("octavo:computed_tokens", "Tokens computed in steps.", stats.computed_tokens_total),
            ("octavo:recomputed_tokens", "Computed again.", stats.recomputed_tokens_total),
            ("octavo:padding_tokens", "What padding would add.", stats.padding_tokens_total),
            ("octavo:swap_out_blocks", "Blocks swapped out.", stats.swap_out_blocks_total),
            ("octavo:swap_in_blocks", "Blocks swapped in.", stats.swap_in_blocks_total),
            ("octavo:copied_blocks", "Copies on write.", stats.copied_blocks_total),
            ("octavo:evicted_blocks", "Cached blocks reused.", stats.evicted_blocks_total),
            (
                "octavo:partial_preemptions",
                "Preemptions that left a part of the blocks.",
                stats.partial_preemptions_total,
            ),
            ("vllm:prefix_cache_queries", "Prompt tokens.", stats.prefix_queried_tokens_total),
            ("vllm:prefix_cache_hits", "Of these, cached.", stats.prefix_hit_tokens_total),
            ("vllm:prompt_tokens_cached", "Found in the cache.", stats.prefix_hit_tokens_total),
            ("octavo:execute_seconds", "In native code.", stats.executed_s_total),
            ("octavo:wait_seconds", "Waiting for native code.", stats.waited_s_total),
            ("octavo:reclaimed_blocks", "Leaked, taken back.", stats.reclaimed_blocks_total),
            ("octavo:audit_failures", "Audits that failed.", stats.audit_failures_total),
            ("octavo:accepted_requests", "Requests taken.", stats.accepted_total),
            ("octavo:expired_leases", "Requests without reader.", stats.expired_leases_total),
            *self._grammar_counters(),
        ):
            family = CounterMetricFamily(name, text, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), value)
            yield family
        text = "Requests that ended, by reason."
        yield self._by_name(
            CounterMetricFamily,
            "vllm:request_success",
            text,
            "finished_reason",
            stats.finished_total,
        )
        hits = stats.prefix_hit_tokens_total
        sources = {"local_compute": stats.prompt_tokens_total - hits, "local_cache_hit": hits}
        name, text = "vllm:prompt_tokens_by_source", "Prompt tokens, by where they came from."
        yield self._by_name(CounterMetricFamily, name, text, "source", sources)
        text = "Preemptions, by what became of the blocks."
        yield self._by_name(
            CounterMetricFamily, "octavo:preemptions", text, "mode", stats.preemptions_by_mode
        )

    def _grammar_counters(self) -> tuple[tuple[str, str, float], ...]:
        stats = self._stats
        return (
            ("octavo:grammars_compiled", "Grammars compiled.", stats.grammars_compiled_total),
            ("octavo:grammars_reused", "Found compiled.", stats.grammars_reused_total),
            ("octavo:grammars_refused", "Not compiled.", stats.grammars_refused_total),
            ("octavo:grammar_compile_seconds", "Compiling.", stats.grammar_compile_s_total),
            ("octavo:grammar_masks", "Masks of allowed tokens.", stats.grammar_masks_total),
            ("octavo:grammar_mask_seconds", "Making masks.", stats.grammar_mask_s_total),
            ("octavo:grammar_seconds", "Constraining, masks too.", stats.grammar_s_total),
            ("octavo:cut_answers", "Closed for lack of tokens.", stats.cut_answers_total),
        )

    def _histograms(self) -> Iterator[Metric]:
        stats = self._stats
        for name, text, snapshot in (
            ("vllm:time_to_first_token_seconds", "Arrival to first token.", stats.ttft_s),
            ("vllm:inter_token_latency_seconds", "Between two tokens.", stats.itl_s),
            ("vllm:time_per_output_token_seconds", "Between two tokens. Older name.", stats.itl_s),
            ("vllm:e2e_request_latency_seconds", "Arrival to last token.", stats.e2e_s),
            ("vllm:request_queue_time_seconds", "Arrival to first step.", stats.queue_s),
            ("octavo:step_seconds", "Duration of a step.", stats.step_s),
            ("octavo:plan_seconds", "Planning a step.", stats.plan_s),
            ("octavo:commit_seconds", "Taking in a step's result.", stats.commit_s),
        ):
            yield self._histogram(name, text, snapshot)
        yield self._histogram("vllm:iteration_tokens_total", "Of a step.", stats.step_tokens)
        for part, (name, text) in _REQUEST_HISTOGRAMS.items():
            yield self._histogram(name, text, stats.requests.get(part, EMPTY))

    def _gauge(
        self, name: str, text: str, value: float, more: Mapping[str, str] | None = None
    ) -> Metric:
        labels = {**self._labels, **(more or {})}
        family = GaugeMetricFamily(name, text, labels=list(labels))
        family.add_metric(list(labels.values()), value)
        return family

    def _by_name(
        self, kind: type[ByName], name: str, text: str, label: str, values: Mapping[str, int]
    ) -> Metric:
        family = kind(name, text, labels=[*self._labels, label])
        for value_name, value in values.items():
            family.add_metric([*self._labels.values(), value_name], value)
        return family

    def _histogram(self, name: str, text: str, snapshot: HistogramSnapshot) -> Metric:
        bounds = [*map(floatToGoString, snapshot.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(snapshot.counts), strict=True))
        family = HistogramMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), buckets, snapshot.sum)
        return family
