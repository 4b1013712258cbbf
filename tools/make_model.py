# SPDX-License-Identifier: Apache-2.0
"""A GGUF file with the shape of a known model and random weights: for speed, not for sense.

    python tools/make_model.py /tmp/llama-1b.gguf                 # Llama-3.2-1B, Q4_K_M, 0.8 GB
    python tools/make_model.py /tmp/small.gguf --layers 2

The mixture of types is that of a Q4_K_M file: V and down of half of the layers in Q6_K, the shared
embedding and head in Q6_K, the rest in Q4_K. Needs numpy.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gguf_writer import GgufWriter, Typed, tensor_bytes
from octavo.formats.gguf_types import ValueType

F32, Q4_K, Q6_K = 0, 12, 14
SCALE = np.float16(1e-4)  # weights of about 0.02, as trained ones have


@dataclass(frozen=True)
class Shape:
    """Defaults: Llama-3.2-1B."""

    num_layers: int = 16
    hidden_dim: int = 2048
    mlp_dim: int = 8192
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 64
    vocab_size: int = 128256
    context_length: int = 131072


def metadata(shape: Shape) -> dict[str, object]:
    names = [*byte_tokens(), "to"]
    names += [f"filler{idx}" for idx in range(shape.vocab_size - len(names) - 1)]
    kinds = [1] * (shape.vocab_size - 1) + [3]
    return {
        "general.architecture": "llama",
        "general.name": "random weights",
        "llama.block_count": shape.num_layers,
        "llama.context_length": shape.context_length,
        "llama.embedding_length": shape.hidden_dim,
        "llama.feed_forward_length": shape.mlp_dim,
        "llama.attention.head_count": shape.num_heads,
        "llama.attention.head_count_kv": shape.num_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 500000.0,
        "llama.rope.dimension_count": shape.head_dim,
        "llama.vocab_size": shape.vocab_size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "llama-bpe",
        "tokenizer.ggml.tokens": [*names, "<|end|>"],
        "tokenizer.ggml.token_type": Typed(ValueType.ARRAY, kinds, ValueType.INT32),
        "tokenizer.ggml.merges": ["t o"],
        "tokenizer.ggml.bos_token_id": shape.vocab_size - 1,
        "tokenizer.ggml.eos_token_id": shape.vocab_size - 1,
    }


def byte_tokens() -> list[str]:
    """Byte-level BPE spells each byte as one printable character: itself, or one past U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(0x100 + idx) for idx in range(len(moved))]


class Weights:
    """Random tensors, valid in their formats and centred on zero."""

    def __init__(self, writer: GgufWriter, seed: int) -> None:
        self._writer = writer
        self._rng = np.random.default_rng(seed)

    def add(self, name: str, shape: tuple[int, ...], ggml_type: int) -> None:
        if ggml_type == F32:
            data = np.ones(shape, np.float32).tobytes()
        else:
            size = tensor_bytes(shape, ggml_type)
            data = {Q4_K: self._q4_k, Q6_K: self._q6_k}[ggml_type](size)
        self._writer.add_tensor(name, shape, ggml_type, data)

    def _q4_k(self, num_bytes: int) -> bytes:
        """d, dmin, 12 bytes of scales and minima, 128 of codes; dmin = 7.5 d centres the codes."""
        blocks = self._random(num_bytes, 144)
        blocks[:, 0:2] = np.frombuffer(SCALE.tobytes(), np.uint8)
        blocks[:, 2:4] = np.frombuffer(np.float16(7.5 * float(SCALE)).tobytes(), np.uint8)
        return blocks.tobytes()

    def _q6_k(self, num_bytes: int) -> bytes:
        """192 bytes of codes, 16 of scales, d."""
        blocks = self._random(num_bytes, 210)
        scales = self._rng.integers(-16, 17, (len(blocks), 16), np.int8)
        blocks[:, 192:208] = scales.view(np.uint8)
        blocks[:, 208:210] = np.frombuffer(SCALE.tobytes(), np.uint8)
        return blocks.tobytes()

    def _random(self, num_bytes: int, block_bytes: int) -> np.ndarray:
        random = np.frombuffer(self._rng.bytes(num_bytes), np.uint8)
        return random.reshape(-1, block_bytes).copy()


def build(shape: Shape, seed: int) -> GgufWriter:
    writer = GgufWriter(metadata(shape))
    weights = Weights(writer, seed)
    hidden, mlp = shape.hidden_dim, shape.mlp_dim
    q_dim, kv_dim = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    weights.add("token_embd.weight", (hidden, shape.vocab_size), Q6_K)
    weights.add("output_norm.weight", (hidden,), F32)
    for idx in range(shape.num_layers):
        finer = Q6_K if idx % 2 == 0 else Q4_K
        layer = f"blk.{idx}."
        weights.add(layer + "attn_norm.weight", (hidden,), F32)
        weights.add(layer + "attn_q.weight", (hidden, q_dim), Q4_K)
        weights.add(layer + "attn_k.weight", (hidden, kv_dim), Q4_K)
        weights.add(layer + "attn_v.weight", (hidden, kv_dim), finer)
        weights.add(layer + "attn_output.weight", (q_dim, hidden), Q4_K)
        weights.add(layer + "ffn_norm.weight", (hidden,), F32)
        weights.add(layer + "ffn_gate.weight", (hidden, mlp), Q4_K)
        weights.add(layer + "ffn_up.weight", (hidden, mlp), Q4_K)
        weights.add(layer + "ffn_down.weight", (mlp, hidden), finer)
    return writer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="file to write")
    parser.add_argument("--layers", type=int, default=Shape.num_layers)
    parser.add_argument("--vocab", type=int, default=Shape.vocab_size)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    writer = build(Shape(num_layers=args.layers, vocab_size=args.vocab), args.seed)
    with args.path.open("wb") as file:
        for _, section in writer.sections():
            file.write(section)
    print(f"{args.path}: {args.path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
