# SPDX-License-Identifier: Apache-2.0
"""The decoder against float64: every field of a specification that changes the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference
from tiny_decoder import BF16, F16, LLAMA, Driver, TinyModel, make_model, with_layers

from octavo.ops.cpu import runnable_kernels
from octavo.types.decoder_spec import Activation, DecoderSpec, RopePairing

EPS32 = 2.0**-24  # of one float32 rounding
NUM_TOKENS = 37  # crosses blocks of 16 and spans of 32, and ends inside both

SPECS = {
    "llama": LLAMA,
    "halves": with_layers(LLAMA, rope_idx=1),
    "gelu": with_layers(LLAMA, activation=Activation.GELU_TANH),
    "window": with_layers(LLAMA, window=5),
    "attn_soft_cap": with_layers(LLAMA, attn_soft_cap=0.5),
    "qk_norm": with_layers(LLAMA, has_qk_norm=True),
    "post_norms": with_layers(LLAMA, has_post_norms=True),
    "qkv_bias": with_layers(LLAMA, has_qkv_bias=True),
    "one_kv_head": with_layers(LLAMA, num_kv_heads=1),
    "no_groups": with_layers(LLAMA, num_kv_heads=6),
    "odd_sizes": with_layers(replace(LLAMA, hidden_dim=36), head_dim=24, mlp_dim=50),
    "tied": replace(LLAMA, tied_output=True),
    "logit_scale": replace(LLAMA, logit_scale=0.4),
    "logit_soft_cap": replace(LLAMA, logit_soft_cap=1.5),
    "embedding_scale": replace(LLAMA, embedding_scale=5.0),
}


def ids_for(seed: int, num_tokens: int = NUM_TOKENS) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, LLAMA.vocab_size, num_tokens)]


def reference_logprobs(
    spec: DecoderSpec, model: TinyModel, ids: list[int]
) -> tuple[np.ndarray, float]:
    """The oracle's logprobs, [position, token], and how far the native ones may be from them.

    Rounding K and V to half is the coarsest rounding in the path. Where a value lies near the
    middle between two halves, float32 noise makes the native side round it the other way. Such
    flips are few, and move the result by less than all the roundings together, which the oracle can
    measure by leaving them out. Beside that stand float32 roundings: in each layer, and at the
    output, a value is a sum of at most ``depth`` products, and errors add up along the residual.
    """
    expected = reference.logprobs(spec, model.weights, ids)
    unrounded = reference.logprobs(spec, model.weights, ids, round_kv=False)
    depth = max(max(layer.mlp_dim, layer.num_heads * layer.head_dim) for layer in spec.layers)
    magnitude = np.abs(reference.logits(spec, model.weights, ids)).max() + np.abs(expected).max()
    rounding = (4 * len(spec.layers) + 1) * depth * EPS32 * magnitude
    return expected, float(np.abs(expected - unrounded).max() + rounding)


def assert_matches(actual: np.ndarray, spec: DecoderSpec, model: TinyModel, ids: list[int]) -> None:
    expected, bound = reference_logprobs(spec, model, ids)
    error = np.abs(actual - expected)
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert error[worst] <= bound, (
        f"(position, token) {worst}: got {actual[worst]!r}, float64 gives {expected[worst]!r}, "
        f"bound {bound:.3g}"
    )


@pytest.mark.parametrize("isa", runnable_kernels())
@pytest.mark.parametrize("name", SPECS)
def test_every_kind_of_layer_matches_float64(name: str, isa: str) -> None:
    model = make_model(SPECS[name], seed=len(name))
    driver = Driver(model, isa=isa)
    driver.open(0)
    ids = ids_for(1)
    assert_matches(driver.score(0, ids), SPECS[name], model, ids)


@pytest.mark.parametrize("ggml_type", [F16, BF16])
def test_half_precision_weights_match_float64(ggml_type: int) -> None:
    model = make_model(LLAMA, (ggml_type,))
    driver = Driver(model)
    driver.open(0)
    ids = ids_for(2)
    assert_matches(driver.score(0, ids), LLAMA, model, ids)


def planted(name: str, spec: DecoderSpec) -> DecoderSpec:
    """The specification with one mistake, as a converter or a reader of a paper makes them."""
    first = spec.ropes[0]
    return {
        "pairing": replace(
            spec, ropes=(replace(first, pairing=RopePairing.HALVES), *spec.ropes[1:])
        ),
        "frequency": replace(
            spec, ropes=(replace(first, inv_freq=(0.99, *first.inv_freq[1:])), *spec.ropes[1:])
        ),
        "scale": with_layers(spec, attn_scale=0.2525),
        "window": with_layers(spec, window=NUM_TOKENS - 1),
        "activation": with_layers(spec, activation=Activation.GELU_TANH),
        "eps": replace(spec, norm_eps=1e-3),
        "cap": with_layers(spec, attn_soft_cap=30.0),
    }[name]


@pytest.mark.parametrize(
    "name", ["pairing", "frequency", "scale", "window", "activation", "eps", "cap"]
)
def test_the_bound_rejects_one_planted_mistake(name: str) -> None:
    model = make_model(LLAMA)
    wrong = TinyModel(planted(name, LLAMA), model.matrices, model.vectors, model.weights)
    driver = Driver(wrong)
    driver.open(0)
    ids = ids_for(3)
    with pytest.raises(AssertionError, match="float64 gives"):
        assert_matches(driver.score(0, ids), LLAMA, model, ids)


def test_a_decode_continues_from_the_token_that_the_row_sampled() -> None:
    model = make_model(LLAMA)
    driver = Driver(model)
    driver.open(0)
    ids = ids_for(4, 9)
    (result,) = driver.step(driver.work(0, ids, samples=True))
    for _ in range(12):
        assert result.token_id is not None
        expected, bound = reference_logprobs(LLAMA, model, ids)
        gap = expected[-1].max() - expected[-1][result.token_id]
        assert gap <= 2 * bound  # greedy: the best, but for a tie within both logprobs' errors
        ids.append(result.token_id)
        (result,) = driver.step(driver.work(0, [], samples=True))
