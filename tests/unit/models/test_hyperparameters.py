# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gguf_writer import GgufWriter, Typed
from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import ValueType
from octavo.models import llama
from octavo.types.decoder_spec import DecoderSpec, Slot, TensorSpec
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tiny_gguf import HIDDEN, VOCAB, tiny_llama


def spec(writer: GgufWriter) -> tuple[DecoderSpec, list[TensorSpec]]:
    return llama.spec(GgufFile("tiny.gguf", memoryview(writer.build())))


def test_sizes_per_layer():
    writer = tiny_llama()
    writer.metadata["llama.attention.head_count_kv"] = [4, 1]
    writer.metadata["llama.feed_forward_length"] = [96, 64]
    decoder, tensors = spec(writer)
    assert [layer.num_kv_heads for layer in decoder.layers] == [4, 1]
    assert TensorSpec("blk.1.ffn_down.weight", Slot.DOWN, 1, (HIDDEN, 64)) in tensors


def test_key_value_heads_default_to_heads():
    writer = tiny_llama()
    del writer.metadata["llama.attention.head_count_kv"]
    assert spec(writer)[0].layers[0].num_kv_heads == 4


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("block_count", 0, r"block_count: got the uint32 0, wanted an integer in \[1, 1024\]"),
        ("block_count", 2**32 - 1, "block_count: got the uint32 4294967295"),
        ("block_count", "2", "block_count: got the string '2'"),
        ("embedding_length", 2**31, "embedding_length: got the uint32 2147483648"),
        ("embedding_length", 66, "attention.key_length: got no such key, and 66 is no multiple"),
        ("attention.head_count", 0, "attention.head_count: got the uint32 0"),
        ("attention.head_count", [4], "attention.head_count: got 1 elements, wanted 2"),
        ("attention.head_count_kv", 3, "attention.head_count_kv: got 3, wanted a divisor of 4"),
        ("attention.key_length", 15, "attention.key_length: got 15, wanted an even number"),
        ("attention.value_length", 8, "attention.value_length: got 8, wanted .*key_length, 16"),
        ("attention.layer_norm_rms_epsilon", 0.0, "attention.*epsilon: got the float32 0.0"),
        ("context_length", 0, "context_length: got the uint32 0"),
        ("feed_forward_length", Typed(ValueType.INT32, -1), "feed_forward_length: got the int32"),
        ("vocab_size", 41, "vocab_size: got 41, but token_embd.weight has 40 rows"),
    ],
)
def test_sizes_without_sense_are_refused(key: str, value: object, match: str):
    writer = tiny_llama()
    writer.metadata[f"llama.{key}"] = value
    with pytest.raises(BadCheckpoint, match=rf"^tiny.gguf: llama.{match}"):
        spec(writer)


def test_every_needed_key_is_missed():
    for key in (
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "context_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ):
        writer = tiny_llama()
        del writer.metadata[f"llama.{key}"]
        with pytest.raises(BadCheckpoint, match=rf"^tiny.gguf: llama.{key}: got no such key"):
            spec(writer)


def test_the_vocabulary_and_the_embedding_agree():
    writer = tiny_llama()
    writer.metadata["tokenizer.ggml.tokens"] = ["x"]
    with pytest.raises(BadCheckpoint, match=r"tokens: got 1 tokens, but token_embd.weight has 40"):
        spec(writer)
    writer = tiny_llama()
    writer.tensor("token_embd.weight").shape = (HIDDEN * VOCAB,)
    with pytest.raises(BadCheckpoint, match=r"token_embd.weight: got shape \(2560,\), wanted two"):
        spec(writer)
    writer.tensors.remove(writer.tensor("token_embd.weight"))
    with pytest.raises(BadCheckpoint, match=r"token_embd.weight: got no such tensor"):
        spec(writer)


@pytest.mark.parametrize("head_dim", [12, 264, 4096])
def test_head_sizes_that_the_core_has_no_code_for_are_refused(head_dim: int):
    writer = tiny_llama()
    writer.metadata["llama.attention.key_length"] = head_dim
    with pytest.raises(UnsupportedModel, match=rf"key_length: got {head_dim}, octavo runs multip"):
        spec(writer)
