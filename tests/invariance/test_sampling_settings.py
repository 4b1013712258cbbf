# SPDX-License-Identifier: Apache-2.0
"""Every sampling setting on at once, on a real model: the same ids and logprobs, bit by bit, alone
or in a batch, preempted either way, forked or not, at every depth of the pipeline.

Penalties and bad words look back at the answer, so each of these must carry its history whole.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from modelkit import GREEDY, evidence, finish, open_engine
from octavo.assemble import Assembled
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import OutputKind, SamplingParams

pytestmark = pytest.mark.model

Evidence = list[list[tuple[object, ...]]]

TEXTS = (
    "One two three one two three one two",
    "The cat sat on the mat and the cat sat on the hat and the cat",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return",
    "Roses are red, violets are blue, roses are red, violets are",
    "A list of fruits: apple, banana, apple, banana, apple, banana,",
    "He said that she said that he said that she said that he",
)
EVERYTHING = SamplingParams(
    temperature=0.9,
    top_p=0.97,
    top_k=200,
    min_p=0.001,
    max_tokens=28,
    min_tokens=20,
    logprobs=2,
    presence_penalty=0.4,
    frequency_penalty=0.3,
    repetition_penalty=1.15,
    logit_bias={"28": 2.0, "30": 1.5, "260": -3.0},  # type: ignore[arg-type]
    bad_words=("cat", "two three", " and"),
    allowed_token_ids=tuple(range(20000)),
    typical_p=0.97,
    top_n_sigma=6.0,
    logprobs_mode="processed_logprobs",
)
HISTORY_FIELDS = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "bad_words": (),
}
SMALL = {"block_size": 8, "num_blocks": 22}  # preempts: the requests want up to 36 blocks


def requests(assembled: Assembled) -> tuple[list[list[int]], list[SamplingParams]]:
    """Every other one is greedy, which sees the edits of the logits and nothing after them."""
    prompts = [assembled.tokenizer.encode(text) for text in TEXTS]
    greedy = EVERYTHING.clone(temperature=0.0)
    return prompts, [EVERYTHING.clone(seed=i) if i % 3 else greedy for i in range(len(TEXTS))]


def answers(assembled: Assembled) -> Evidence:
    return [evidence(output) for output in finish(assembled, *requests(assembled))]


@pytest.fixture(scope="module")
def plain(smollm2_path: Path) -> Evidence:
    """One request at a time, without prefix cache or pipeline."""
    with open_engine(smollm2_path, enable_prefix_caching=False, pipeline_depth=1) as assembled:
        prompts, params = requests(assembled)
        return [
            evidence(finish(assembled, [prompt], [param])[0])
            for prompt, param in zip(prompts, params, strict=True)
        ]


@pytest.mark.parametrize("depth", [1, 2])
def test_in_a_batch(smollm2_path: Path, plain: Evidence, depth: int):
    with open_engine(smollm2_path, pipeline_depth=depth, step_tokens=24) as assembled:
        assert answers(assembled) == plain


@pytest.mark.parametrize("mode", ["swap", "recompute"])
@pytest.mark.parametrize("depth", [1, 2])
def test_preempted(smollm2_path: Path, plain: Evidence, mode: str, depth: int):
    with open_engine(
        smollm2_path, preemption_mode=mode, num_swap_blocks=32, pipeline_depth=depth, **SMALL
    ) as assembled:
        assert answers(assembled) == plain
        stats = assembled.engine.stats()
        assert stats.preemptions_total > 2
        if mode == "swap":
            assert stats.swap_in_blocks_total > 0


def test_each_history_matters_here(smollm2_path: Path, plain: Evidence):
    """Or the equalities above would say nothing of it."""
    with open_engine(smollm2_path) as assembled:
        prompts, params = requests(assembled)
        for field, off in HISTORY_FIELDS.items():
            without = [param.clone(**{field: off}) for param in params]
            assert [evidence(out) for out in finish(assembled, prompts, without)] != plain, field


def test_the_answers_keep_the_rules(smollm2_path: Path):
    with open_engine(smollm2_path) as assembled:
        prompts, params = requests(assembled)
        free = finish(assembled, prompts, [GREEDY.clone(max_tokens=28)] * len(prompts))
        outputs = finish(assembled, prompts, params)
    assert any("cat" in output.outputs[0].text for output in free)
    for output in outputs:
        (sample,) = output.outputs
        assert max(sample.token_ids) < 20000
        assert len(sample.token_ids) >= 20
        assert not any(word in sample.text for word in ("cat ", "two three", " and "))


def sampled_alone(
    assembled: Assembled, prompt: list[int], params: SamplingParams, sample_idx: int
) -> RequestOutput:
    """A request of one sample that draws as the ``sample_idx``-th of several would."""
    engine = assembled.engine
    engine.add_request("alone", prompt, params.clone(output_kind=OutputKind.FINAL_ONLY))
    (seq,) = engine.groups["alone"].sequences
    seq.sampling = replace(seq.sampling, sample_idx=sample_idx)
    outputs = []
    while engine.has_unfinished():
        outputs += engine.step()
    return outputs[-1]


@pytest.mark.parametrize("depth", [1, 2])
def test_samples_of_one_prompt_are_those_of_so_many_requests(smollm2_path: Path, depth: int):
    params = EVERYTHING.clone(seed=11)
    tight = {"block_size": 8, "num_blocks": 20, "num_swap_blocks": 16, "preemption_mode": "swap"}
    with open_engine(smollm2_path, enable_prefix_caching=False) as assembled:
        prompt, other = (assembled.tokenizer.encode(text) for text in TEXTS[1:3])
        alone = [sampled_alone(assembled, prompt, params, idx).outputs[0] for idx in range(4)]
    with open_engine(smollm2_path, pipeline_depth=depth) as assembled:
        (together,) = finish(assembled, [prompt], [params.clone(n=4)])
    with open_engine(smollm2_path, pipeline_depth=depth, step_tokens=16, **tight) as assembled:
        jobs = [other, prompt], [GREEDY, params.clone(n=4)]
        pressed = finish(assembled, *jobs)[1]
        assert assembled.engine.stats().preemptions_total > 0
    assert list(together.outputs) == alone
    assert pressed.outputs == together.outputs
    assert len({sample.token_ids for sample in together.outputs}) == 4
