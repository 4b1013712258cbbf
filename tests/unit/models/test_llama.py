# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gguf_writer import GgufWriter
from octavo.formats.gguf import GgufFile
from octavo.models import llama
from octavo.types.decoder_spec import Activation, DecoderSpec, RopePairing, Slot, TensorSpec
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tiny_gguf import HEAD_DIM, HIDDEN, KV_HEADS, VOCAB, tiny_llama


def spec(writer: GgufWriter) -> tuple[DecoderSpec, list[TensorSpec]]:
    return llama.spec(GgufFile("tiny.gguf", memoryview(writer.build())))


def test_the_spec_of_a_plain_model():
    decoder, tensors = spec(tiny_llama())
    assert (decoder.hidden_dim, decoder.vocab_size, decoder.context_length) == (HIDDEN, VOCAB, 128)
    assert decoder.tied_output
    assert decoder.embedding_scale == 1.0
    assert decoder.norm_eps == pytest.approx(1e-5, rel=2**-24)  # stored as float32
    (rope,) = decoder.ropes
    assert (rope.pairing, len(rope.inv_freq)) == (RopePairing.INTERLEAVED, HEAD_DIM // 2)
    layer = decoder.layers[1]
    assert (layer.num_heads, layer.num_kv_heads, layer.head_dim) == (4, KV_HEADS, HEAD_DIM)
    assert layer.attn_scale == 0.25
    assert layer.activation is Activation.SILU
    assert layer.window is None
    assert not layer.has_qk_norm
    assert not layer.has_qkv_bias
    assert len(tensors) == 2 + 2 * 9
    assert len({tensor.name for tensor in tensors}) == len(tensors)


def test_an_output_matrix_of_its_own():
    writer = tiny_llama()
    writer.add_tensor("output.weight", (HIDDEN, VOCAB))
    decoder, tensors = spec(writer)
    assert not decoder.tied_output
    assert TensorSpec("output.weight", Slot.OUTPUT, None, (VOCAB, HIDDEN)) in tensors


def test_biases_are_wanted_where_a_layer_has_them():
    writer = tiny_llama()
    for letter, dim in (("q", 64), ("k", 32), ("v", 32)):
        writer.add_tensor(f"blk.1.attn_{letter}.bias", (dim,))
    decoder, tensors = spec(writer)
    assert [layer.has_qkv_bias for layer in decoder.layers] == [False, True]
    assert TensorSpec("blk.1.attn_k.bias", Slot.K_BIAS, 1, (32,)) in tensors
    writer.tensors.pop()
    with pytest.raises(BadCheckpoint, match=r"blk.1.attn_v.bias: got no such tensor"):
        spec(writer)


def test_mixtures_of_experts_are_refused():
    writer = tiny_llama()
    writer.metadata["llama.expert_count"] = 8
    with pytest.raises(UnsupportedModel, match=r"llama.expert_count: got 8, octavo runs"):
        spec(writer)
