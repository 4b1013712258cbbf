# SPDX-License-Identifier: Apache-2.0
"""The cache and the scheduler are invisible except in speed: tokens and logprobs are equal, bit by
bit.

Every case runs the same requests in another way and compares all ids, logprobs and alternatives
with those of each request alone, whole, on one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from modelkit import GREEDY, evidence, finish, open_engine
from octavo.types.sampling_params import SamplingParams

pytestmark = pytest.mark.model

NUM_SEQS = 18
# Lengths on both sides of block (32), span (32) and segment (256) boundaries.
LENGTHS = (1, 5, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 17, 9, 255, 256, 257, 3)
SEEDED = SamplingParams(
    temperature=0.9, top_p=0.95, top_k=50, seed=7, max_tokens=24, ignore_eos=True, logprobs=2
)

Evidence = list[list[tuple[object, ...]]]


def requests() -> tuple[list[list[int]], list[SamplingParams]]:
    """18 prompts of ordinary ids; odd ones are sampled with a seed, even ones greedy."""
    prompts = [
        [1000 + (idx * 7919 + pos * 104729) % 40000 for pos in range(length)]
        for idx, length in enumerate(LENGTHS)
    ]
    params = [SEEDED.clone(seed=idx) if idx % 2 else GREEDY for idx in range(NUM_SEQS)]
    return prompts, params


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(f"{request.param}_path")
    return found


@pytest.fixture(scope="module")
def alone(path: Path) -> Iterator[Evidence]:
    """What each request answers when nothing else is there."""
    prompts, params = requests()
    with open_engine(path, threads=1, step_tokens=2048) as assembled:
        yield [
            evidence(finish(assembled, [prompt], [param])[0])
            for prompt, param in zip(prompts, params, strict=True)
        ]


def together(path: Path, **chosen: object) -> Evidence:
    prompts, params = requests()
    with open_engine(path, **chosen) as assembled:
        return [evidence(output) for output in finish(assembled, prompts, params)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_in_a_batch_of_18_on_any_number_of_threads(path: Path, alone: Evidence, threads: int):
    assert together(path, threads=threads, step_tokens=2048) == alone


@pytest.mark.parametrize("step_tokens", [64, 16])
def test_prefill_in_chunks(path: Path, alone: Evidence, step_tokens: int):
    """18 sequences share each step's budget, so chunks have every length up to it."""
    assert together(path, step_tokens=step_tokens) == alone


@pytest.mark.parametrize("step_tokens", [7, 1])
def test_prefill_in_tiny_chunks_alone(path: Path, alone: Evidence, step_tokens: int):
    prompts, params = requests()
    some = [1, 4, 8]
    with open_engine(path, step_tokens=step_tokens) as assembled:
        for idx in some:
            (output,) = finish(assembled, [prompts[idx]], [params[idx]])
            assert evidence(output) == alone[idx], idx


@pytest.mark.parametrize("block_size", [16, 32])
def test_block_sizes(path: Path, alone: Evidence, block_size: int):
    assert together(path, block_size=block_size) == alone


def test_recomputed_after_preemption(path: Path, alone: Evidence):
    """A pool hardly larger than the longest request: whoever runs beside it is preempted.

    Nothing is reserved for answers: a reserve would keep most of them waiting instead.
    """
    prompts, params = requests()
    with open_engine(path, block_size=8, num_blocks=40, admission_reserve="none") as assembled:
        outputs = finish(assembled, prompts, params)
        assert assembled.engine.stats().preemptions_total >= 5
    assert [evidence(output) for output in outputs] == alone


def test_evidence_has_teeth(path: Path, alone: Evidence):
    """Another temperature must show: else the comparison compares nothing."""
    prompts, params = requests()
    with open_engine(path) as assembled:
        (output,) = finish(assembled, [prompts[1]], [params[1].clone(temperature=0.91)])
    assert evidence(output) != alone[1]
