# SPDX-License-Identifier: Apache-2.0
"""A model whose every layer sees 8 positions back: blocks behind the window are given up and used
for something else, and every answer keeps its bits. No model is downloaded for this.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import pytest

from modelkit import evidence, finish, settings
from octavo.assemble import Assembled, load_model
from octavo.engine.engine import Engine
from octavo.executor.inline import InlineExecutor
from octavo.executor.threaded import ThreadedExecutor
from octavo.formats.gguf import GgufFile
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import SamplingParams
from octavo.worker.worker import Worker
from tiny_gguf import tiny_gemma3

WINDOW = 8
CONTEXT = 1024
BLOCK_SIZE = 8
PARAMS = SamplingParams(temperature=1.0, seed=5, max_tokens=60, ignore_eos=True, logprobs=2)

Evidence = list[list[tuple[object, ...]]]


def tiny_model() -> bytes:
    writer = tiny_gemma3(seed=3)
    writer.metadata["gemma3.context_length"] = CONTEXT
    return writer.build()


MODEL = tiny_model()


@dataclass
class Setup:
    """How the pool is kept; ``keeps_all``: nothing is given up before its sequence ends."""

    num_blocks: int = 400
    num_swap_blocks: int = 0
    depth: int = 1
    step_tokens: int = 64
    keeps_all: bool = False


@contextmanager
def open_tiny(setup: Setup, **chosen: object) -> Iterator[Assembled]:
    config = settings(
        num_blocks=setup.num_blocks,
        block_size=BLOCK_SIZE,
        threads=1,
        step_tokens=setup.step_tokens,
        max_model_len=CONTEXT,
        **chosen,  # type: ignore[arg-type]
    )
    with GgufFile("tiny.gguf", memoryview(MODEL)) as file:
        decoder, spec, tokenizer = load_model(file, config.runtime)
    assert spec.window == WINDOW
    decoder.create_kv_cache(
        setup.num_blocks, BLOCK_SIZE, num_rows=16, step_tokens_max=setup.step_tokens
    )
    if setup.num_swap_blocks:
        decoder.create_swap(setup.num_swap_blocks, None)
    worker = Worker(decoder)
    executor = (
        InlineExecutor(worker) if setup.depth == 1 else ThreadedExecutor(worker, depth=setup.depth)
    )
    engine = Engine(
        executor,
        tokenizer,
        config,
        clock=count().__next__,
        seeds=count().__next__,
        window=None if setup.keeps_all else spec.window,
    )
    assembled = Assembled(engine, tokenizer, "tiny", spec, decoder.isa, decoder.num_threads)
    try:
        yield assembled
    finally:
        assembled.close()


def requests() -> tuple[list[list[int]], list[SamplingParams]]:
    """Prompts around block and window, two of them with a common beginning."""
    rng = random.Random(1)
    prompts = [[rng.randrange(3, 40) for _ in range(n)] for n in (1, 7, 8, 9, 16, 30, 77, 130)]
    prompts.append(prompts[-1][:100] + [rng.randrange(3, 40) for _ in range(20)])
    return prompts, [PARAMS.clone(seed=idx) for idx in range(len(prompts))]


def run(setup: Setup, **chosen: object) -> tuple[list[RequestOutput], Assembled]:
    with open_tiny(setup, **chosen) as assembled:
        outputs = finish(assembled, *requests())
        assembled.engine.check()
    return outputs, assembled


@pytest.fixture(scope="module")
def plain() -> Evidence:
    """Each alone, with all of its past kept."""
    prompts, params = requests()
    found = []
    for prompt, param in zip(prompts, params, strict=True):
        with open_tiny(Setup(keeps_all=True), enable_prefix_caching=False) as assembled:
            found.append(evidence(finish(assembled, [prompt], [param])[0]))
    return found


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("step_tokens", [64, 11])
def test_blocks_behind_the_window_are_missed_by_nobody(
    plain: Evidence, depth: int, caching: bool, step_tokens: int
):
    """16 blocks for 9 requests that are up to 24 blocks long."""
    setup = Setup(num_blocks=16, depth=depth, step_tokens=step_tokens)
    outputs, _ = run(setup, enable_prefix_caching=caching)
    assert [evidence(output) for output in outputs] == plain


@pytest.mark.parametrize("mode", ["swap", "recompute", "auto", "legacy"])
def test_nor_after_a_preemption(plain: Evidence, mode: str):
    setup = Setup(num_blocks=13, num_swap_blocks=20, depth=2)
    outputs, assembled = run(setup, preemption_mode=mode)
    assert [evidence(output) for output in outputs] == plain
    stats = assembled.engine.stats()
    assert stats.preemptions_total > 0
    if mode == "swap":
        assert stats.swap_in_blocks_total > 0


def test_nor_by_samples_of_one_prompt():
    prompt = requests()[0][-1]
    params = PARAMS.clone(n=3)
    with open_tiny(Setup(keeps_all=True), enable_prefix_caching=False) as assembled:
        (kept,) = finish(assembled, [prompt], [params])
    with open_tiny(Setup(num_blocks=14, num_swap_blocks=6, depth=2)) as assembled:
        (forgot,) = finish(assembled, [prompt], [params])
    assert forgot.outputs == kept.outputs


def test_a_prefix_that_somebody_has_slid_past_is_found_whole(plain: Evidence):
    prompts, params = requests()
    with open_tiny(Setup()) as assembled:
        for _ in range(2):
            (output,) = finish(assembled, prompts[-2:-1], params[-2:-1])
            assert evidence(output) == plain[-2]
        assert output.num_cached_tokens >= 128
        (other,) = finish(assembled, prompts[-1:], params[-1:])
    assert evidence(other) == plain[-1]
    assert other.num_cached_tokens == 100


def test_memory_does_not_grow_with_the_answer():
    """900 tokens through a pool of 56: a sequence holds its window and the block it writes to."""
    params = PARAMS.clone(max_tokens=900)
    with open_tiny(Setup(keeps_all=True), enable_prefix_caching=False) as assembled:
        (kept,) = finish(assembled, [[4, 5, 6]], [params])
    with open_tiny(Setup(num_blocks=8)) as assembled:
        engine = assembled.engine
        engine.add_request("long", [4, 5, 6], params)
        most, outputs = 0, []
        while engine.has_unfinished():
            outputs += engine.step()
            most = max(most, engine.blocks.usage().num_referenced)
    assert list(outputs[-1].outputs[0].token_ids) == list(kept.outputs[0].token_ids)
    assert most <= 3
    assert outputs[-1].num_output_tokens == 900


def test_a_prompt_longer_than_the_pool_is_taken(plain: Evidence):
    """130 tokens and 60 more through 7 blocks of 8, which makes chunks of at most 32."""
    prompts, params = requests()
    with open_tiny(Setup(num_blocks=8, depth=2)) as assembled:
        (output,) = finish(assembled, prompts[-2:-1], params[-2:-1])
    assert evidence(output) == plain[-2]


def test_a_window_that_is_believed_too_small_shows(plain: Evidence):
    """What these comparisons are worth: blocks that are still seen are given up."""
    prompts, params = requests()
    with open_tiny(Setup(num_blocks=16), enable_prefix_caching=False) as assembled:
        assembled.engine.blocks.window.size = 1
        outputs = finish(assembled, prompts, params)
    assert [evidence(output) for output in outputs] != plain
