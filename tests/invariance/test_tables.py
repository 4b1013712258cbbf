# SPDX-License-Identifier: Apache-2.0
"""Every kernel table gives the same bits through whole models, not only kernel by kernel: prompts
in chunks, answers in a batch, greedy and sampled."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelkit import GREEDY, evidence, finish, open_engine
from octavo.ops import cpu
from octavo.types.sampling_params import SamplingParams

pytestmark = pytest.mark.model

REFERENCE = "scalar"
LENGTHS = (1, 9, 33, 70)  # on both sides of blocks and spans; 70 takes three chunks of 32
SAMPLED = SamplingParams(
    temperature=0.9, top_p=0.95, top_k=50, seed=7, max_tokens=6, ignore_eos=True, logprobs=2
)

Evidence = list[list[tuple[object, ...]]]


def answers(path: Path, isa: str) -> Evidence:
    prompts = [
        [1000 + (idx * 7919 + pos * 104729) % 40000 for pos in range(length)]
        for idx, length in enumerate(LENGTHS)
    ]
    greedy = GREEDY.clone(max_tokens=6)
    params = [SAMPLED.clone(seed=idx) if idx % 2 else greedy for idx in range(len(LENGTHS))]
    with open_engine(path, isa=isa, step_tokens=32) as assembled:
        assert assembled.isa == isa
        return [evidence(output) for output in finish(assembled, prompts, params)]


@pytest.fixture(scope="module", params=["smollm2", "gemma3"])
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(f"{request.param}_path")
    return found


@pytest.fixture(scope="module")
def reference(path: Path) -> Evidence:
    return answers(path, REFERENCE)


@pytest.mark.parametrize("isa", [name for name in cpu.compiled_kernels() if name != REFERENCE])
def test_gives_the_bits_of_the_scalar_table(path: Path, reference: Evidence, isa: str) -> None:
    if isa not in cpu.runnable_kernels():
        pytest.skip(f"this CPU cannot run {isa}")
    assert answers(path, isa) == reference
