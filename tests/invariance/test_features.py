# SPDX-License-Identifier: Apache-2.0
"""Every scheduling feature on against off, on a real model: the same ids and logprobs, bit by bit.

Each test also shows that the feature was at work, from the engine's own counters: an equality
between two plain runs would prove nothing.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from modelkit import GREEDY, evidence, finish, open_engine
from octavo.assemble import Assembled
from octavo.types.sampling_params import SamplingParams

pytestmark = pytest.mark.model

Evidence = list[list[tuple[object, ...]]]

SEEDED = SamplingParams(
    temperature=0.8, top_p=0.9, seed=3, max_tokens=40, ignore_eos=True, logprobs=2
)
NUM_REQUESTS = 12
SMALL = {"block_size": 16, "num_blocks": 40}  # preempts: 12 requests want up to 90 blocks


def ids(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(length)]


def requests() -> tuple[list[list[int]], list[SamplingParams]]:
    prompts = [ids(idx, 20 + 7 * idx) for idx in range(NUM_REQUESTS)]
    params = [SEEDED.clone(seed=idx) if idx % 2 else GREEDY for idx in range(NUM_REQUESTS)]
    return prompts, params


def answers(assembled: Assembled) -> Evidence:
    return [evidence(output) for output in finish(assembled, *requests())]


@pytest.fixture(scope="module")
def path(smollm2_path: Path) -> Path:
    return smollm2_path


@pytest.fixture(scope="module")
def plain(path: Path) -> Evidence:
    """No prefix cache, no pipeline, no preemption, one request at a time."""
    prompts, params = requests()
    with open_engine(path, enable_prefix_caching=False, pipeline_depth=1) as assembled:
        return [
            evidence(finish(assembled, [prompt], [param])[0])
            for prompt, param in zip(prompts, params, strict=True)
        ]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_pipeline_depth(path: Path, plain: Evidence, depth: int):
    with open_engine(path, pipeline_depth=depth, **SMALL) as assembled:
        assert answers(assembled) == plain


@pytest.mark.parametrize("mode", ["swap", "recompute", "auto", "legacy"])
@pytest.mark.parametrize("depth", [1, 2])
def test_preemption_modes(path: Path, plain: Evidence, mode: str, depth: int):
    with open_engine(
        path, preemption_mode=mode, num_swap_blocks=64, pipeline_depth=depth, **SMALL
    ) as assembled:
        assert answers(assembled) == plain
        stats = assembled.engine.stats()
        assert stats.preemptions_total > 0
        if mode == "swap":
            assert stats.swap_out_blocks_total > 0
            assert stats.swap_in_blocks_total > 0


@pytest.mark.parametrize("depth", [1, 2])
def test_partial_preemption(path: Path, plain: Evidence, depth: int):
    """Against ``plain``, as all are: what is kept of a victim is as good as what is computed."""
    with open_engine(
        path,
        preemption_mode="recompute",
        enable_prefix_caching=False,
        pipeline_depth=depth,
        **SMALL,
    ) as assembled:
        assert answers(assembled) == plain
        stats = assembled.engine.stats()
        assert stats.partial_preemptions_total > 0


@pytest.mark.parametrize(
    "limits",
    [
        {"high_watermark": 0.3},
        {"partial_preemption": False},
        {"max_num_active_seqs": 3},
        {"prefill_share": 0.1, "step_tokens": 64},
        {"batch_reserve": 0.3},
    ],
    ids=str,
)
def test_limits_of_who_runs_and_how_much(path: Path, plain: Evidence, limits: dict[str, object]):
    with open_engine(path, num_swap_blocks=16, **SMALL, **limits) as assembled:
        assert answers(assembled) == plain


def test_swap_to_a_file(path: Path, plain: Evidence, tmp_path: Path):
    with open_engine(
        path, preemption_mode="swap", num_swap_blocks=64, swap_path=str(tmp_path), **SMALL
    ) as assembled:
        assert answers(assembled) == plain
        assert assembled.engine.stats().swap_in_blocks_total > 0


def test_a_swap_pool_that_is_too_small_falls_back(path: Path, plain: Evidence):
    with open_engine(path, preemption_mode="swap", num_swap_blocks=3, **SMALL) as assembled:
        assert answers(assembled) == plain
        assert assembled.engine.stats().preemptions_total > 0


@pytest.mark.parametrize("policy", ["fcfs", "priority", "sjf", "hrrn", "lpm", "fair"])
def test_policies(path: Path, plain: Evidence, policy: str):
    with open_engine(path, scheduling_policy=policy, num_seqs=4, **SMALL) as assembled:
        assert answers(assembled) == plain


@pytest.mark.parametrize("lookahead", [0, 8])
@pytest.mark.parametrize("reserve", ["none", "full"])
def test_look_past_and_reserve(path: Path, plain: Evidence, lookahead: int, reserve: str):
    with open_engine(
        path, lookahead_window=lookahead, admission_reserve=reserve, step_tokens=48, **SMALL
    ) as assembled:
        assert answers(assembled) == plain


@pytest.mark.parametrize("reserve", ["prompt", "max_model_len"])
@pytest.mark.parametrize("depth", [1, 2])
def test_static_batches(path: Path, plain: Evidence, reserve: str, depth: int):
    with open_engine(
        path,
        batching="static",
        admission_reserve=reserve,
        max_model_len=160,
        pipeline_depth=depth,
        **SMALL,
    ) as assembled:
        assert answers(assembled) == plain
        assert assembled.engine.stats().padding_tokens_total > 0


def test_chaos(path: Path, plain: Evidence, monkeypatch: pytest.MonkeyPatch):
    """Preemptions and failing swaps out of the blue. (An environment variable is the interface.)"""
    monkeypatch.setenv("OCTAVO_CHAOS", "preempt:0.3,swapfail:0.05")
    with open_engine(path, num_swap_blocks=32) as assembled:
        assert answers(assembled) == plain
        assert assembled.engine.stats().preemptions_total > 10


@pytest.mark.parametrize("length", [31, 64, 100, 257])
def test_prefix_cache_cold_warm_and_partial(path: Path, length: int):
    """The same prompt again; one that leaves it in the middle of a block; one that goes on."""
    base = ids(99, length)
    cases = [base, base, base[: length - 5] + ids(98, 9), base + ids(97, 20)]
    with open_engine(path, enable_prefix_caching=False) as assembled:
        cold = [evidence(finish(assembled, [case], [SEEDED])[0]) for case in cases]
    with open_engine(path) as assembled:
        outputs = [finish(assembled, [case], [SEEDED])[0] for case in cases]
    assert [evidence(output) for output in outputs] == cold
    cached = [output.num_cached_tokens for output in outputs]
    assert cached[0] == 0
    if (
        length > 40
    ):  # at least one whole block had been computed, and more than whole blocks is used
        assert all(cached[1:]), cached
        assert any(count % 32 for count in cached), cached


def test_prefix_hits_within_one_batch(path: Path):
    shared = ids(96, 200)
    prompts = [shared + ids(idx, 11) for idx in range(8)]
    with open_engine(path, enable_prefix_caching=False) as assembled:
        cold = [evidence(output) for output in finish(assembled, prompts, [SEEDED] * 8)]
    with open_engine(path) as assembled:
        outputs = finish(assembled, prompts, [SEEDED] * 8)
    assert [evidence(output) for output in outputs] == cold
    assert sum(output.num_cached_tokens > 0 for output in outputs) == 7


@pytest.mark.parametrize("length", [33, 64, 75])
def test_samples_of_one_prompt(path: Path, length: int):
    """n samples in one request: what each says does not depend on how their blocks are shared, and
    the first is what the request says alone."""
    prompt, params = ids(95, length), SEEDED.clone(n=4)
    with open_engine(path, pipeline_depth=1) as assembled:
        (together,) = finish(assembled, [prompt], [params])
        (alone,) = finish(assembled, [prompt], [SEEDED])
    assert len({sample.token_ids for sample in together.outputs}) == 4
    assert together.outputs[0].token_ids == alone.outputs[0].token_ids
    tight = {"block_size": 8, "num_blocks": 36, "num_swap_blocks": 16, "preemption_mode": "swap"}
    with open_engine(path, pipeline_depth=3, step_tokens=16, **tight) as assembled:
        others = [ids(94, 60), ids(93, 40)]
        outputs = finish(assembled, [others[0], prompt, others[1]], [GREEDY, params, GREEDY])
        assert assembled.engine.stats().preemptions_total > 0
    assert outputs[1].outputs == together.outputs
