# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from gguf_writer import GgufWriter
from octavo.formats.gguf import GgufFile
from octavo.models import gemma3
from octavo.models.rope import inverse_frequencies
from octavo.types.decoder_spec import Activation, DecoderSpec, RopePairing, Slot, TensorSpec
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tiny_gguf import HEAD_DIM, HIDDEN, tiny_gemma3


def spec(writer: GgufWriter) -> tuple[DecoderSpec, list[TensorSpec]]:
    return gemma3.spec(GgufFile("tiny.gguf", memoryview(writer.build())))


def windows(writer: GgufWriter) -> list[int | None]:
    return [layer.window for layer in spec(writer)[0].layers]


def test_the_spec_of_a_plain_model():
    decoder, tensors = spec(tiny_gemma3())
    assert decoder.embedding_scale == HIDDEN**0.5  # 8, the same in float32
    assert decoder.tied_output
    layer = decoder.layers[0]
    assert layer.activation is Activation.GELU_TANH
    assert layer.attn_scale == HEAD_DIM**-0.5
    assert layer.has_qk_norm
    assert layer.has_post_norms
    assert layer.attn_soft_cap is None
    assert TensorSpec("blk.1.attn_k_norm.weight", Slot.K_NORM, 1, (HEAD_DIM,)) in tensors
    assert len(tensors) == 2 + 2 * 13


def test_the_embedding_scale_is_rounded_to_float32():
    writer = tiny_gemma3()
    writer.metadata["gemma3.embedding_length"] = 640
    assert spec(writer)[0].embedding_scale == 25.298221588134766


def test_a_model_sees_as_far_as_its_farthest_layer():
    writer = tiny_gemma3()
    assert windows(writer) == [8, 8]
    assert spec(writer)[0].window == 8
    writer.metadata["gemma3.attention.sliding_window_pattern"] = 2
    assert windows(writer) == [8, None]
    assert spec(writer)[0].window is None
    decoder = spec(tiny_gemma3())[0]
    wider = replace(decoder.layers[0], window=20)
    assert replace(decoder, layers=(*decoder.layers, wider)).window == 20


def test_every_sixth_layer_sees_everything():
    writer = tiny_gemma3()
    writer.metadata["gemma3.block_count"] = 18
    assert windows(writer) == ([8] * 5 + [None]) * 3
    writer.metadata["gemma3.attention.sliding_window_pattern"] = 2
    assert windows(writer) == [8, None] * 9
    writer.metadata["gemma3.block_count"] = 3
    writer.metadata["gemma3.attention.sliding_window_pattern"] = [False, True, True]
    assert windows(writer) == [None, 8, 8]
    writer.metadata["gemma3.block_count"] = 2
    with pytest.raises(BadCheckpoint, match="sliding_window_pattern: got 3 elements, wanted 2"):
        windows(writer)


def test_local_layers_have_a_rope_of_their_own_that_is_never_scaled():
    writer = tiny_gemma3()
    writer.metadata["gemma3.block_count"] = 6
    writer.metadata["gemma3.rope.freq_base"] = 1e6
    writer.metadata["gemma3.rope.scaling.type"] = "linear"
    writer.metadata["gemma3.rope.scaling.factor"] = 8.0
    decoder, _ = spec(writer)
    local, wide = (decoder.ropes[decoder.layers[idx].rope_idx] for idx in (0, 5))
    assert local.inv_freq == inverse_frequencies(HEAD_DIM, 1e4)
    assert wide.inv_freq == tuple(value / 8.0 for value in inverse_frequencies(HEAD_DIM, 1e6))
    assert local.pairing is wide.pairing is RopePairing.HALVES


def test_the_largest_model_scales_by_hidden_over_heads():
    writer = tiny_gemma3()
    writer.metadata["gemma3.block_count"] = 62
    writer.metadata["gemma3.embedding_length"] = 400
    assert spec(writer)[0].layers[0].attn_scale == pytest.approx(0.1, rel=2**-52)  # 400 / 4 heads


def test_soft_caps_are_taken_where_the_file_has_them():
    writer = tiny_gemma3()
    writer.metadata["gemma3.final_logit_softcapping"] = 30.0
    writer.metadata["gemma3.attn_logit_softcapping"] = 50.0
    decoder, _ = spec(writer)
    assert (decoder.logit_soft_cap, decoder.layers[0].attn_soft_cap) == (30.0, 50.0)


def test_a_missing_window_and_unknown_factors_are_refused():
    writer = tiny_gemma3()
    del writer.metadata["gemma3.attention.sliding_window"]
    with pytest.raises(BadCheckpoint, match=r"gemma3.attention.sliding_window: got no such key"):
        spec(writer)
    writer = tiny_gemma3()
    writer.add_tensor("rope_freqs.weight", (HEAD_DIM // 2,))
    with pytest.raises(UnsupportedModel, match=r"rope_freqs.weight: got frequency factors"):
        spec(writer)
