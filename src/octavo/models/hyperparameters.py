# SPDX-License-Identifier: Apache-2.0
"""The sizes that every decoder has, read from a GGUF file's metadata and checked for sense."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import damaged, one_line
from octavo.types.errors import UnsupportedModel

# Well above the largest published dense model (Llama 3.1 405B: 126 layers, hidden 16,384, MLP
# 53,248, 128 heads of 128), and small enough that no product of two comes near 64 bits.
LAYERS_MAX = 1024
HIDDEN_MAX = 2**18
MLP_MAX = 2**22
HEADS_MAX = 2**14
HEAD_DIM_MAX = 2**12
CONTEXT_MAX = 2**30

# What native/src/decoder/config.cc accepts; other sizes are sensible, but octavo has no code for
# them.
NATIVE_HEAD_DIM_STEP = 8
NATIVE_HEAD_DIM_MAX = 256
NATIVE_VOCAB_MAX = 2**24

EMBEDDING = "token_embd.weight"
TOKENS_KEY = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """Sizes in elements. The per-layer tuples have one entry per layer."""

    hidden_dim: int
    vocab_size: int
    context_length: int
    norm_eps: float
    head_dim: int
    num_heads: tuple[int, ...]
    num_kv_heads: tuple[int, ...]
    mlp_dim: tuple[int, ...]

    @property
    def num_layers(self) -> int:
        return len(self.num_heads)


def read_hyperparameters(file: GgufFile, arch: str) -> Hyperparameters:
    """The ``<arch>.*`` keys. Raises ``BadCheckpoint`` for what is missing or makes no sense,
    ``UnsupportedModel`` for sizes that the native core has no code for.
    """
    metadata = file.metadata
    num_layers = metadata.get_int(f"{arch}.block_count", 1, LAYERS_MAX)
    hidden_dim = metadata.get_int(f"{arch}.embedding_length", 1, HIDDEN_MAX)
    num_heads = _per_layer(file, f"{arch}.attention.head_count", num_layers, HEADS_MAX)
    kv_key = f"{arch}.attention.head_count_kv"
    num_kv_heads = num_heads
    if kv_key in metadata:
        num_kv_heads = _per_layer(file, kv_key, num_layers, HEADS_MAX)
    for heads, kv_heads in zip(num_heads, num_kv_heads, strict=True):
        if heads % kv_heads:
            raise damaged(file.source, kv_key, f"got {kv_heads}, wanted a divisor of {heads} heads")
    return Hyperparameters(
        hidden_dim=hidden_dim,
        vocab_size=_vocab_size(file, arch),
        context_length=metadata.get_int(f"{arch}.context_length", 1, CONTEXT_MAX),
        norm_eps=metadata.get_float(f"{arch}.attention.layer_norm_rms_epsilon", 1e-12, 1.0),
        head_dim=_head_dim(file, arch, hidden_dim, num_heads[0]),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        mlp_dim=_per_layer(file, f"{arch}.feed_forward_length", num_layers, MLP_MAX),
    )


def _per_layer(file: GgufFile, key: str, num_layers: int, high: int) -> tuple[int, ...]:
    """A number for all layers, or an array with one for each."""
    if file.metadata.is_array(key):
        return tuple(file.metadata.get_ints(key, 1, high, count=num_layers))
    return (file.metadata.get_int(key, 1, high),) * num_layers


def _head_dim(file: GgufFile, arch: str, hidden_dim: int, num_heads: int) -> int:
    key = f"{arch}.attention.key_length"
    if key not in file.metadata and hidden_dim % num_heads:
        message = f"got no such key, and {hidden_dim} is no multiple of {num_heads} heads"
        raise damaged(file.source, key, message)
    default = max(hidden_dim // num_heads, 1)
    head_dim = file.metadata.get_int(key, 2, HEAD_DIM_MAX, default=default)
    value_key = f"{arch}.attention.value_length"
    value_dim = file.metadata.get_int(value_key, 2, HEAD_DIM_MAX, default=head_dim)
    if head_dim % 2 or not 2 <= head_dim <= HEAD_DIM_MAX:
        message = f"got {head_dim}, wanted an even number in [2, {HEAD_DIM_MAX}]"
        raise damaged(file.source, key, message)
    if value_dim != head_dim:
        raise damaged(file.source, value_key, f"got {value_dim}, wanted {key}, {head_dim}")
    if head_dim % NATIVE_HEAD_DIM_STEP or head_dim > NATIVE_HEAD_DIM_MAX:
        step, most = NATIVE_HEAD_DIM_STEP, NATIVE_HEAD_DIM_MAX
        message = f"got {head_dim}, octavo runs multiples of {step} up to {most}"
        raise UnsupportedModel(one_line(file.source, key, message))
    return head_dim


def _vocab_size(file: GgufFile, arch: str) -> int:
    """Rows of the embedding; the tokenizer's list and the vocabulary key must agree with it."""
    info = file.tensors.get(EMBEDDING)
    if info is None:
        raise damaged(file.source, EMBEDDING, "got no such tensor, wanted the embedding matrix")
    if len(info.shape) != 2:
        raise damaged(file.source, EMBEDDING, f"got shape {info.shape}, wanted two dimensions")
    vocab_size = info.shape[1]
    if vocab_size > NATIVE_VOCAB_MAX:
        message = f"got {vocab_size} rows, octavo runs up to {NATIVE_VOCAB_MAX}"
        raise UnsupportedModel(one_line(file.source, EMBEDDING, message))
    if TOKENS_KEY in file.metadata:
        num_tokens = len(file.metadata.get_string_array(TOKENS_KEY))
        if num_tokens != vocab_size:
            message = f"got {num_tokens} tokens, but {EMBEDDING} has {vocab_size} rows"
            raise damaged(file.source, TOKENS_KEY, message)
    size_key = f"{arch}.vocab_size"
    stated = file.metadata.get_int(size_key, 1, 2**32, default=vocab_size)
    if stated != vocab_size:
        message = f"got {stated}, but {EMBEDDING} has {vocab_size} rows"
        raise damaged(file.source, size_key, message)
    return vocab_size
