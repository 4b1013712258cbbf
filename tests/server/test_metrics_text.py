# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from serverkit import MODEL, ReciteEngine, connect, make_app

pytestmark = pytest.mark.anyio

WITHOUT_MEANING_HERE = {  # sleeping engines, GPUs, remote caches, images
    "vllm:engine_sleep_state",
    "vllm:estimated_flops_per_gpu_total",
    "vllm:estimated_read_bytes_per_gpu_total",
    "vllm:estimated_write_bytes_per_gpu_total",
    "vllm:external_prefix_cache_hits_total",
    "vllm:external_prefix_cache_queries_total",
    "vllm:mm_cache_hits_total",
    "vllm:mm_cache_queries_total",
}

LABELS = {"model_name": MODEL, "engine": "0"}


async def scrape(**headers: str):
    async with connect(make_app()) as client:
        return await client.get("/metrics", headers=headers)


async def families():
    text = (await scrape()).text
    return {family.name: family for family in text_string_to_metric_families(text)}


async def test_gauges_and_counters_are_the_snapshot():
    found = await families()
    stats = ReciteEngine().stats()
    for name, value in {
        "vllm:num_requests_running": stats.num_running,
        "vllm:num_requests_waiting": stats.num_waiting,
        "vllm:num_requests_swapped": stats.num_swapped,
        "vllm:kv_cache_usage_perc": 0.25,
        "vllm:prompt_tokens": stats.prompt_tokens_total,
        "vllm:generation_tokens": stats.generation_tokens_total,
        "vllm:num_preemptions": stats.preemptions_total,
    }.items():
        (sample,) = found[name].samples
        assert (sample.value, sample.labels) == (value, LABELS)


async def test_counters_end_in_total_once():
    text = (await scrape()).text
    assert "vllm:prompt_tokens_total{" in text
    assert "_total_total" not in text
    assert "_created" not in text


async def test_finished_requests_are_counted_by_reason():
    samples = (await families())["vllm:request_success"].samples
    counts = {sample.labels["finished_reason"]: sample.value for sample in samples}
    assert counts == {"stop": 3, "length": 0, "abort": 0, "error": 0, "timeout": 0}


async def test_histogram_buckets_are_cumulative_and_end_at_infinity():
    samples = (await families())["vllm:time_to_first_token_seconds"].samples
    buckets = [(s.labels["le"], s.value) for s in samples if s.name.endswith("_bucket")]
    values = [value for _, value in buckets]
    assert values == sorted(values)
    assert buckets[0] == ("0.01", 0)
    assert buckets[1] == ("0.025", 2)
    assert buckets[-2:] == [("300.0", 2), ("+Inf", 3)]
    rest = {s.name.rpartition("_")[2]: s.value for s in samples if "le" not in s.labels}
    assert rest == {"count": 3, "sum": pytest.approx(1000.04, rel=1e-12)}


async def test_block_states_add_up_and_settings_are_labels():
    found = await families()
    assert sum(sample.value for sample in found["octavo:kv_blocks"].samples) == 8
    (info,) = found["vllm:cache_config_info"].samples
    assert (info.labels["block_size"], info.labels["num_gpu_blocks"]) == ("32", "8")


async def test_nothing_is_registered_in_the_process():
    before = list(REGISTRY.collect())
    await scrape()
    assert [m.name for m in REGISTRY.collect()] == [m.name for m in before]


async def test_content_type_follows_the_scraper():
    assert (await scrape()).headers["content-type"].startswith("text/plain")
    response = await scrape(accept="application/openmetrics-text; version=1.0.0")
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


async def test_names_are_those_of_the_dashboards(data_dir):
    """Every vllm: family is one of vLLM's current names or one of the older names listed here."""
    older = {
        "vllm:num_requests_swapped": "gauge",
        "vllm:gpu_cache_usage_perc": "gauge",
        "vllm:cpu_cache_usage_perc": "gauge",
        "vllm:time_per_output_token_seconds": "histogram",
    }
    path = data_dir / "server" / "vllm_metric_families_v0.26.0.txt"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    known = dict(line.split() for line in lines) | older
    ours = {
        f"{name}_total" if family.type == "counter" else name: family.type
        for name, family in (await families()).items()
        if name.startswith("vllm:")
    }
    assert ours.items() <= known.items()
    assert known.keys() - ours.keys() == WITHOUT_MEANING_HERE


async def test_blocks_are_counted_by_state_and_preemptions_by_mode():
    found = await families()
    blocks = {s.labels["state"]: s.value for s in found["octavo:kv_blocks"].samples}
    assert blocks == {"free": 6, "cached": 0, "limbo": 1, "used": 1}
    assert sum(blocks.values()) == ReciteEngine().stats().num_blocks
    assert found["octavo:preemptions"].type == "counter"
    assert found["octavo:num_requests_waiting_by_reason"].type == "gauge"
