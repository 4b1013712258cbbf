# SPDX-License-Identifier: Apache-2.0
"""The llama architecture: Llama 1 to 3.x, and the many that share it (SmolLM2, TinyLlama, Mistral).

Pre-norm layers, grouped-query attention, SiLU-gated MLP. Converters to GGUF permute the rows of the
q and k matrices so that the two dims of a rotary pair lie side by side.
"""

from __future__ import annotations

import math

from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import damaged, one_line
from octavo.models.hyperparameters import EMBEDDING, Hyperparameters, read_hyperparameters
from octavo.models.rope import read_rope
from octavo.types.decoder_spec import (
    Activation,
    DecoderSpec,
    LayerSpec,
    RopePairing,
    Slot,
    TensorSpec,
)
from octavo.types.errors import UnsupportedModel

ARCHITECTURE = "llama"
OUTPUT = "output.weight"


def spec(file: GgufFile) -> tuple[DecoderSpec, list[TensorSpec]]:
    """The decoder that the metadata describes. Raises ``BadCheckpoint``, ``UnsupportedModel``."""
    _refuse_experts(file)
    params = read_hyperparameters(file, ARCHITECTURE)
    rope = read_rope(file, RopePairing.INTERLEAVED, params.head_dim, params.context_length)
    layers = tuple(_layer(file, params, idx) for idx in range(params.num_layers))
    tied = OUTPUT not in file.tensors
    decoder = DecoderSpec(
        architecture=ARCHITECTURE,
        hidden_dim=params.hidden_dim,
        vocab_size=params.vocab_size,
        context_length=params.context_length,
        norm_eps=params.norm_eps,
        layers=layers,
        ropes=(rope,),
        tied_output=tied,
    )
    return decoder, tensors(decoder)


def tensors(decoder: DecoderSpec) -> list[TensorSpec]:
    """What the file must hold, in the order in which a token meets it."""
    matrix = (decoder.vocab_size, decoder.hidden_dim)
    wanted = [
        TensorSpec(EMBEDDING, Slot.EMBEDDING, None, matrix),
        TensorSpec("output_norm.weight", Slot.OUTPUT_NORM, None, (decoder.hidden_dim,)),
    ]
    if not decoder.tied_output:
        wanted.append(TensorSpec(OUTPUT, Slot.OUTPUT, None, matrix))
    for idx, layer in enumerate(decoder.layers):
        wanted += _layer_tensors(idx, layer, decoder.hidden_dim)
    return wanted


def _layer(file: GgufFile, params: Hyperparameters, idx: int) -> LayerSpec:
    return LayerSpec(
        num_heads=params.num_heads[idx],
        num_kv_heads=params.num_kv_heads[idx],
        head_dim=params.head_dim,
        mlp_dim=params.mlp_dim[idx],
        activation=Activation.SILU,
        rope_idx=0,
        attn_scale=1.0 / math.sqrt(params.head_dim),
        has_qkv_bias=_has_qkv_bias(file, idx),
    )


def _layer_tensors(idx: int, layer: LayerSpec, hidden: int) -> list[TensorSpec]:
    q_dim = layer.num_heads * layer.head_dim
    kv_dim = layer.num_kv_heads * layer.head_dim
    shapes: list[tuple[str, Slot, tuple[int, ...]]] = [
        ("attn_norm.weight", Slot.ATTN_NORM, (hidden,)),
        ("attn_q.weight", Slot.Q, (q_dim, hidden)),
        ("attn_k.weight", Slot.K, (kv_dim, hidden)),
        ("attn_v.weight", Slot.V, (kv_dim, hidden)),
        ("attn_output.weight", Slot.ATTN_OUTPUT, (hidden, q_dim)),
        ("ffn_norm.weight", Slot.MLP_NORM, (hidden,)),
        ("ffn_gate.weight", Slot.GATE, (layer.mlp_dim, hidden)),
        ("ffn_up.weight", Slot.UP, (layer.mlp_dim, hidden)),
        ("ffn_down.weight", Slot.DOWN, (hidden, layer.mlp_dim)),
    ]
    if layer.has_qkv_bias:
        shapes += [
            ("attn_q.bias", Slot.Q_BIAS, (q_dim,)),
            ("attn_k.bias", Slot.K_BIAS, (kv_dim,)),
            ("attn_v.bias", Slot.V_BIAS, (kv_dim,)),
        ]
    return [TensorSpec(f"blk.{idx}.{name}", slot, idx, shape) for name, slot, shape in shapes]


def _has_qkv_bias(file: GgufFile, idx: int) -> bool:
    names = [f"blk.{idx}.attn_{letter}.bias" for letter in "qkv"]
    missing = [name for name in names if name not in file.tensors]
    if missing and len(missing) < len(names):
        raise damaged(file.source, missing[0], "got no such tensor, wanted biases for q, k and v")
    return not missing


def _refuse_experts(file: GgufFile) -> None:
    key = f"{ARCHITECTURE}.expert_count"
    num_experts = file.metadata.get_int(key, 0, 2**16, default=0)
    if num_experts:
        message = f"got {num_experts}, octavo runs llama models without experts only"
        raise UnsupportedModel(one_line(file.source, key, message))
