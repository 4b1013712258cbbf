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

from octavo.metrics.engine_metrics import EngineStats
from octavo.metrics.histogram import HistogramSnapshot


def response(stats: EngineStats, model_name: str, accept: str = "") -> Response:
    """The text format, or OpenMetrics for a scraper whose ``accept`` header asks for it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatsCollector(stats, model_name))
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

    def _cache(self) -> Iterator[Metric]:
        stats = self._stats
        text = "Share of KV blocks in use, 0 to 1."
        yield self._gauge("vllm:kv_cache_usage_perc", text, stats.kv_usage)
        yield self._gauge("vllm:gpu_cache_usage_perc", f"{text} Older name.", stats.kv_usage)
        config = {"block_size": stats.block_size, "num_gpu_blocks": stats.num_blocks}
        labels = {name: str(value) for name, value in config.items()}
        yield self._gauge("vllm:cache_config_info", "Settings of the KV cache.", 1, labels)
        blocks = GaugeMetricFamily(
            "octavo:kv_blocks",
            "KV blocks by state; limbo waits for a step in flight.",
            labels=[*self._labels, "state"],
        )
        counts = (stats.num_free_blocks, stats.num_limbo_blocks, stats.num_used_blocks)
        for state, count in zip(("free", "limbo", "used"), counts, strict=True):
            blocks.add_metric([*self._labels.values(), state], count)
        yield blocks

    def _counters(self) -> Iterator[Metric]:
        stats = self._stats
        for name, text, value in (
            ("vllm:prompt_tokens", "Prompt tokens of requests.", stats.prompt_tokens_total),
            ("vllm:generation_tokens", "Tokens generated.", stats.generation_tokens_total),
            ("vllm:num_preemptions", "Preemptions.", stats.preemptions_total),
            ("octavo:steps", "Steps run.", stats.steps_total),
            ("octavo:failed_steps", "Steps that failed.", stats.failed_steps_total),
            ("octavo:computed_tokens", "Tokens computed in steps.", stats.computed_tokens_total),
        ):
            family = CounterMetricFamily(name, text, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), value)
            yield family
        finished = CounterMetricFamily(
            "vllm:request_success",
            "Requests that ended, by reason.",
            labels=[*self._labels, "finished_reason"],
        )
        for reason, count in stats.finished_total.items():
            finished.add_metric([*self._labels.values(), reason], count)
        yield finished

    def _histograms(self) -> Iterator[Metric]:
        stats = self._stats
        for name, text, snapshot in (
            ("vllm:time_to_first_token_seconds", "Arrival to first token.", stats.ttft_s),
            ("vllm:inter_token_latency_seconds", "Between two tokens.", stats.itl_s),
            ("vllm:time_per_output_token_seconds", "Between two tokens. Older name.", stats.itl_s),
            ("vllm:e2e_request_latency_seconds", "Arrival to last token.", stats.e2e_s),
            ("vllm:request_queue_time_seconds", "Arrival to first step.", stats.queue_s),
            ("octavo:step_seconds", "Duration of a step.", stats.step_s),
        ):
            yield self._histogram(name, text, snapshot)

    def _gauge(
        self, name: str, text: str, value: float, more: Mapping[str, str] | None = None
    ) -> Metric:
        labels = {**self._labels, **(more or {})}
        family = GaugeMetricFamily(name, text, labels=list(labels))
        family.add_metric(list(labels.values()), value)
        return family

    def _histogram(self, name: str, text: str, snapshot: HistogramSnapshot) -> Metric:
        bounds = [*map(floatToGoString, snapshot.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(snapshot.counts), strict=True))
        family = HistogramMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), buckets, snapshot.sum)
        return family
