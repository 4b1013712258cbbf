# SPDX-License-Identifier: Apache-2.0
"""octavo against transformers in float32 on the same dequantised weights.

Where may a correct engine choose another token? Only where rounding can turn the order of the two
best logits. octavo rounds activations to 8 bits per block of 32: with amax about 2.1 sigma the
step is 0.0165 sigma, so the rounding error is 0.0165 / sqrt(12) = 0.48 % of the input's spread,
and a matrix passes it on as 0.48 % of its output's spread, independent of depth. A layer
quantises four inputs in two branches, each of two in a row: 0.48 % * sqrt(2) of each branch's
output. The residual stream is the sum of the branches, so its relative error is that of a branch,
0.7 %, times a gain for what norms and later branches do with an error (each reads the stream's
error as its input's: at most as much again per branch read, in practice about two). Logits have a
spread of about 5 over the vocabulary: 2 * 0.7 % * 5 = 0.07 a logit, 0.07 * sqrt(2) = 0.1 for the
difference of two, and five of those is the bound.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelkit import finish, open_engine
from octavo.assemble import Assembled
from octavo.types.sampling_params import SamplingParams

pytestmark = pytest.mark.model

MARGIN_BOUND = 0.5
# A logprob is a logit minus the log-sum, which moves less: one logit's share of the bound above.
LOGPROB_BOUND = MARGIN_BOUND / math.sqrt(2)
PERPLEXITY_TOLERANCE = 0.01
MODELS = ("smollm2", "gemma3")


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, data_dir: Path) -> Iterator[tuple[Any, Assembled]]:
    golden = json.loads((data_dir / "golden" / f"{request.param}.json").read_text())
    with open_engine(request.getfixturevalue(f"{request.param}_path")) as assembled:
        yield golden, assembled


def forced(assembled: Assembled, items: list[Any]) -> Iterator[tuple[str, int, float, Any]]:
    """Each golden token given the reference's own past: (prompt, index, margin, our logprobs)."""
    prompts = [item["prompt_ids"] + item["ids"] for item in items]
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=1)
    for item, output in zip(items, finish(assembled, prompts, [params] * len(items)), strict=True):
        assert output.prompt_logprobs is not None
        for idx, margin in enumerate(item["margin"]):
            yield item["prompt"], idx, margin, output.prompt_logprobs[len(item["prompt_ids"]) + idx]


def disagreements(assembled: Assembled, golden: Any) -> list[str]:
    by_prompt = {item["prompt"]: item for item in golden["items"]}
    wrong = []
    for prompt, idx, margin, entry in forced(assembled, golden["items"]):
        item = by_prompt[prompt]
        best = min(entry, key=lambda token: entry[token].rank)
        if margin > MARGIN_BOUND and best != item["ids"][idx]:
            wrong.append(f"{prompt!r} token {idx}: {best}, not {item['ids'][idx]} ({margin=})")
        error = entry[item["ids"][idx]].logprob - item["logprobs"][idx]
        if abs(error) > LOGPROB_BOUND:
            wrong.append(f"{prompt!r} token {idx}: logprob off by {error:.3f}")
    return wrong


def perplexity(assembled: Assembled, golden: Any) -> float:
    """exp of the mean next-token NLL over the golden windows, each on its own."""
    window = golden["ppl_window_tokens"]
    ids = golden["ppl_ids"]
    bos = [2] if golden["model"] == "gemma3" else []  # the reference prepends it to each window
    windows = [bos + ids[begin : begin + window] for begin in range(0, len(ids), window)]
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    losses = []
    for tokens, output in zip(
        windows, finish(assembled, windows, [params] * len(windows)), strict=True
    ):
        assert output.prompt_logprobs is not None
        for position in range(1, len(tokens)):
            entry = output.prompt_logprobs[position]
            assert entry is not None
            losses.append(-entry[tokens[position]].logprob)
    return math.exp(sum(losses) / len(losses))


def test_every_golden_token_is_ours_where_the_margin_decides(model: tuple[Any, Assembled]):
    golden, assembled = model
    assert not disagreements(assembled, golden)


def test_greedy_text_is_golden_until_the_first_close_call(model: tuple[Any, Assembled]):
    golden, assembled = model
    params = [
        SamplingParams(temperature=0.0, max_tokens=len(item["ids"])) for item in golden["items"]
    ]
    prompts = [item["prompt_ids"] for item in golden["items"]]
    for item, output in zip(golden["items"], finish(assembled, prompts, params), strict=True):
        sure = next(
            (i for i, margin in enumerate(item["margin"]) if margin <= MARGIN_BOUND),
            len(item["ids"]),
        )
        assert list(output.outputs[0].token_ids[:sure]) == item["ids"][:sure], item["prompt"]


def test_perplexity_is_the_references(model: tuple[Any, Assembled]):
    golden, assembled = model
    ours = perplexity(assembled, golden)
    assert abs(ours / golden["ppl"] - 1) < PERPLEXITY_TOLERANCE, (ours, golden["ppl"])
