# SPDX-License-Identifier: Apache-2.0
"""Whole models of a few kilobytes, with random weights, of every architecture that octavo runs."""

from __future__ import annotations

import random
import struct

from gguf_writer import GgufWriter, tensor_bytes

HIDDEN, MLP, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 64, 96, 4, 2, 16, 40, 2
F32, Q8_0 = 0, 8

# Enough of a vocabulary for either kind of tokenizer.
TOKENS = ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz012345678\u2581", "to"]
TOKEN_TYPES = [2, 3, 3] + [1] * (VOCAB - 3)


def tiny_llama(seed: int = 0, matrix_type: int = F32) -> GgufWriter:
    writer = GgufWriter(_metadata("llama"))
    writer.metadata["tokenizer.ggml.model"] = "gpt2"
    writer.metadata["tokenizer.ggml.pre"] = "smollm"
    writer.metadata["tokenizer.ggml.merges"] = ["t o"]
    _add_shared(writer, random.Random(seed), matrix_type)
    return writer


def tiny_gemma3(seed: int = 0, matrix_type: int = F32) -> GgufWriter:
    writer = GgufWriter(_metadata("gemma3"))
    writer.metadata["tokenizer.ggml.model"] = "llama"
    writer.metadata["tokenizer.ggml.scores"] = [-float(idx) for idx in range(VOCAB)]
    writer.metadata["gemma3.attention.key_length"] = HEAD_DIM
    writer.metadata["gemma3.attention.sliding_window"] = 8
    rng = random.Random(seed)
    _add_shared(writer, rng, matrix_type)
    for idx in range(LAYERS):
        for name, dim in (
            ("attn_q_norm", HEAD_DIM),
            ("attn_k_norm", HEAD_DIM),
            ("post_attention_norm", HIDDEN),
            ("post_ffw_norm", HIDDEN),
        ):
            _add(writer, rng, f"blk.{idx}.{name}.weight", (dim,), F32)
    return writer


def _metadata(arch: str) -> dict[str, object]:
    return {
        "general.architecture": arch,
        "general.name": f"tiny {arch}",
        f"{arch}.block_count": LAYERS,
        f"{arch}.context_length": 128,
        f"{arch}.embedding_length": HIDDEN,
        f"{arch}.feed_forward_length": MLP,
        f"{arch}.attention.head_count": HEADS,
        f"{arch}.attention.head_count_kv": KV_HEADS,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.freq_base": 10000.0,
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TOKEN_TYPES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


def _add_shared(writer: GgufWriter, rng: random.Random, matrix_type: int) -> None:
    _add(writer, rng, "token_embd.weight", (HIDDEN, VOCAB), matrix_type)
    _add(writer, rng, "output_norm.weight", (HIDDEN,), F32)
    for idx in range(LAYERS):
        _add(writer, rng, f"blk.{idx}.attn_norm.weight", (HIDDEN,), F32)
        _add(writer, rng, f"blk.{idx}.attn_q.weight", (HIDDEN, HEADS * HEAD_DIM), matrix_type)
        _add(writer, rng, f"blk.{idx}.attn_k.weight", (HIDDEN, KV_HEADS * HEAD_DIM), matrix_type)
        _add(writer, rng, f"blk.{idx}.attn_v.weight", (HIDDEN, KV_HEADS * HEAD_DIM), matrix_type)
        _add(writer, rng, f"blk.{idx}.attn_output.weight", (HEADS * HEAD_DIM, HIDDEN), matrix_type)
        _add(writer, rng, f"blk.{idx}.ffn_norm.weight", (HIDDEN,), F32)
        _add(writer, rng, f"blk.{idx}.ffn_gate.weight", (HIDDEN, MLP), matrix_type)
        _add(writer, rng, f"blk.{idx}.ffn_up.weight", (HIDDEN, MLP), matrix_type)
        _add(writer, rng, f"blk.{idx}.ffn_down.weight", (MLP, HIDDEN), matrix_type)


def _add(
    writer: GgufWriter, rng: random.Random, name: str, shape: tuple[int, ...], ggml_type: int
) -> None:
    """Random values of a size that keeps activations near 1: norms near 1, rows of length 1."""
    num_bytes = tensor_bytes(shape, ggml_type)
    if ggml_type == F32:
        spread = shape[0] ** -0.5
        centre = 1.0 if len(shape) == 1 else 0.0
        values = [centre + spread * rng.gauss(0.0, 1.0) for _ in range(num_bytes // 4)]
        data = struct.pack(f"<{len(values)}f", *values)
    elif ggml_type == Q8_0:
        scale = struct.pack("<e", shape[0] ** -0.5 / 127.0)
        data = b"".join(scale + rng.randbytes(32) for _ in range(num_bytes // 34))
    else:
        raise ValueError(f"no random tensors of type {ggml_type} here")
    writer.add_tensor(name, shape, ggml_type, data)
