# SPDX-License-Identifier: Apache-2.0
"""The composition root: every None becomes a value, and what fails half-way leaves nothing."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from octavo.assemble import (
    KV_SHARE,
    Assembled,
    choose_depth,
    choose_num_blocks,
    read_chat_template,
    start_engine,
)
from octavo.formats.gguf import GgufFile
from octavo.machine.cpus import CpuBudget
from octavo.models.registry import spec_for
from octavo.types.config import (
    CacheConfig,
    ChatConfig,
    EngineConfig,
    RuntimeConfig,
    SchedulerConfig,
)
from octavo.types.errors import InvalidConfig, UnsupportedModel
from octavo.types.sampling_params import SamplingParams
from tiny_gguf import KV_HEADS, LAYERS, tiny_gemma3, tiny_llama

CONTEXT = 128  # of the tiny models
SPEC, _ = spec_for(GgufFile("tiny.gguf", memoryview(tiny_llama().build())))
BLOCK_BYTES = 4 * KV_HEADS * 16 * LAYERS * 32  # float16 K and V of 16 dims, 32 slots


def assemble(
    cache: CacheConfig = CacheConfig(num_blocks=8),  # noqa: B008 (frozen)
    scheduler: SchedulerConfig = SchedulerConfig(),  # noqa: B008
    runtime: RuntimeConfig = RuntimeConfig(threads=1, seed=0),  # noqa: B008
    data: bytes = tiny_llama().build(),
) -> Assembled:
    with GgufFile("tiny.gguf", memoryview(data)) as file:
        config = EngineConfig(cache=cache, scheduler=scheduler, runtime=runtime)
        return start_engine(file, config, model_name="tiny")


def answer(assembled: Assembled, **params: object) -> tuple[int, ...]:
    sampling = SamplingParams(max_tokens=6, ignore_eos=True, **params)  # type: ignore[arg-type]
    assembled.engine.add_request("r", [3, 4, 5], sampling)
    outputs = []
    while assembled.engine.has_unfinished():
        outputs += assembled.engine.step()
    assembled.close()
    return outputs[-1].outputs[0].token_ids


def test_an_exact_number_of_blocks_is_taken_as_it_is():
    assert choose_num_blocks(CacheConfig(num_blocks=3), SPEC, usable_bytes=0) == 3


def test_blocks_fill_the_given_bytes_or_a_share_of_what_is_left():
    given = CacheConfig(kv_cache_memory_bytes=5 * BLOCK_BYTES + 1)
    assert choose_num_blocks(given, SPEC, usable_bytes=0) == 5
    usable_bytes = int(10 * BLOCK_BYTES / KV_SHARE) + 1
    assert choose_num_blocks(CacheConfig(), SPEC, usable_bytes=usable_bytes) == 10


@pytest.mark.parametrize("usable_bytes", [0, BLOCK_BYTES])
def test_a_budget_below_one_block_is_refused_with_what_to_do(usable_bytes: int):
    with pytest.raises(InvalidConfig, match=rf"{BLOCK_BYTES} bytes, got .*kv_cache_memory_bytes"):
        choose_num_blocks(CacheConfig(), SPEC, usable_bytes=usable_bytes)


@pytest.mark.parametrize("make", [tiny_llama, tiny_gemma3])
def test_an_assembled_engine_answers_after_its_file_was_closed(make):
    assembled = assemble(data=make().build())
    assert len(answer(assembled, temperature=0.0)) == 6
    assembled.close()  # idempotent


def test_the_models_own_context_is_the_default_and_the_most():
    assembled = assemble()
    assert assembled.engine.admission.limits.max_model_len == CONTEXT
    assembled.close()
    with pytest.raises(InvalidConfig, match=f"context of {CONTEXT}, got {CONTEXT + 1}"):
        assemble(scheduler=SchedulerConfig(max_model_len=CONTEXT + 1))


def test_a_model_of_windows_sets_the_null_block_aside():
    for make, num_blocks in ((tiny_llama, 8), (tiny_gemma3, 7)):
        assembled = assemble(data=make().build())
        assert assembled.engine.blocks.usage().num_blocks == num_blocks
        assembled.close()


def test_a_swap_pool_in_memory_must_fit_into_it():
    with pytest.raises(InvalidConfig, match=r"swap_space in memory must fit .* swap_path it may"):
        assemble(CacheConfig(num_blocks=8, swap_space=2.0**19))


def test_a_kernel_table_that_does_not_exist_is_a_bad_setting():
    with pytest.raises(InvalidConfig, match="'axv2' does not exist; this CPU can run: "):
        assemble(runtime=RuntimeConfig(threads=1, isa="axv2"))


def test_a_model_that_cannot_run_is_refused_before_anything_is_reserved():
    writer = tiny_llama()
    writer.metadata["general.architecture"] = "mamba"
    with pytest.raises(UnsupportedModel, match="octavo runs: gemma3, llama"):
        assemble(data=writer.build())


def test_the_engines_seed_repeats_the_requests_that_bring_none():
    first, again, other = (
        answer(assemble(runtime=RuntimeConfig(threads=1, seed=seed)), temperature=2.0)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_planted_specification_takes_the_place_of_the_files_own():
    data = tiny_llama().build()
    with GgufFile("tiny.gguf", memoryview(data)) as file:
        config = EngineConfig(cache=CacheConfig(num_blocks=8), runtime=RuntimeConfig(threads=1))
        spec = replace(SPEC, logit_scale=2.0)
        assembled = start_engine(file, config, model_name="tiny", spec=spec)
    assert assembled.spec is spec
    assembled.close()


@pytest.mark.parametrize(("depth", "found"), [(None, 1), (10, 10)])
def test_an_experiment_may_go_deeper_than_the_configuration(depth: int | None, found: int):
    data = tiny_llama().build()
    with GgufFile("tiny.gguf", memoryview(data)) as file:
        runtime = RuntimeConfig(threads=1, pipeline_depth=1)
        config = EngineConfig(cache=CacheConfig(num_blocks=8), runtime=runtime)
        assembled = start_engine(file, config, model_name="tiny", depth=depth)
    try:
        assert assembled.engine.stats().pipeline_depth == found
    finally:
        assembled.close()


@pytest.mark.parametrize(
    ("num_affine", "quota", "threads", "depth"),
    [
        (2, None, 2, 1),
        (2, None, 1, 2),
        (8, None, 7, 2),
        (8, 2.0, 2, 1),
        (8, 2.5, 2, 1),
        (8, 3.0, 2, 2),
    ],
)
def test_planning_ahead_needs_a_cpu_of_its_own(
    num_affine: int, quota: float | None, threads: int, depth: int
):
    budget = CpuBudget(threads, "", num_affine, num_affine, quota)
    assert choose_depth(RuntimeConfig(), threads, budget) == depth
    assert choose_depth(RuntimeConfig(pipeline_depth=3), threads, budget) == 3


def test_a_chat_template_of_ones_own(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("{{ messages[0].content }}é", "utf-8")
    chat = ChatConfig(chat_template=str(path))
    with GgufFile("tiny.gguf", memoryview(tiny_llama().build())) as file:
        config = EngineConfig(cache=CacheConfig(num_blocks=8), chat=chat)
        assembled = start_engine(file, config, model_name="tiny")
    with contextlib.closing(assembled):
        assert assembled.tokenizer.chat_template == "{{ messages[0].content }}é"
        assert assembled.chat is chat


@pytest.mark.parametrize(
    ("content", "match"),
    [(None, "No such file"), (b"\xff", "UTF-8"), (b"{% if %}", "cannot be compiled")],
)
def test_a_chat_template_that_cannot_be_used_is_refused_at_the_start(tmp_path, content, match):
    path = tmp_path / "mine.jinja"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidConfig, match=match):
        read_chat_template(ChatConfig(chat_template=str(path)))


@pytest.mark.parametrize("text", ["x", "[]", "5", "[" * 100_000])
def test_default_variables_are_an_object(text):
    with pytest.raises(InvalidConfig, match="default_chat_template_kwargs"):
        ChatConfig(default_chat_template_kwargs=text)
