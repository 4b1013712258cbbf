# SPDX-License-Identifier: Apache-2.0
"""The gemma3 architecture, text part: 270M to 27B.

Norms before and after both halves of a layer and on the heads of q and k, GELU-gated MLP,
embeddings scaled by sqrt(hidden). Five layers of six see a sliding window and turn by a rope of
base 10000; every sixth sees everything, with the file's base. Converters to GGUF have already added
the 1 that Gemma's RMSNorm adds to its weights. Source: the Gemma 3 report (arXiv 2503.19786).
"""

from __future__ import annotations

import math
import struct

from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import one_line
from octavo.models.hyperparameters import EMBEDDING, Hyperparameters, read_hyperparameters
from octavo.models.rope import FACTORS_TENSOR, inverse_frequencies, read_rope
from octavo.types.decoder_spec import (
    Activation,
    DecoderSpec,
    LayerSpec,
    RopePairing,
    RopeSpec,
    Slot,
    TensorSpec,
)
from octavo.types.errors import UnsupportedModel

ARCHITECTURE = "gemma3"
OUTPUT = "output.weight"
LOCAL_ROPE_BASE = 10000.0
PATTERN_PERIOD = 6  # five local layers, then a global one, where the file does not say
NUM_LAYERS_27B = 62  # the one size whose attention scale is not 1 / sqrt(head_dim)
GLOBAL_ROPE, LOCAL_ROPE = 0, 1


def spec(file: GgufFile) -> tuple[DecoderSpec, list[TensorSpec]]:
    """The decoder that the metadata describes. Raises ``BadCheckpoint``, ``UnsupportedModel``."""
    metadata = file.metadata
    params = read_hyperparameters(file, ARCHITECTURE)
    window = metadata.get_int(f"{ARCHITECTURE}.attention.sliding_window", 1, 2**30)
    is_local = _local_layers(file, params.num_layers)
    decoder = DecoderSpec(
        architecture=ARCHITECTURE,
        hidden_dim=params.hidden_dim,
        vocab_size=params.vocab_size,
        context_length=params.context_length,
        norm_eps=params.norm_eps,
        layers=tuple(
            _layer(file, params, idx, window if is_local[idx] else None)
            for idx in range(params.num_layers)
        ),
        ropes=_ropes(file, params),
        embedding_scale=_float32(math.sqrt(params.hidden_dim)),
        logit_soft_cap=_soft_cap(file, "final_logit_softcapping"),
        tied_output=OUTPUT not in file.tensors,
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


def _layer(file: GgufFile, params: Hyperparameters, idx: int, window: int | None) -> LayerSpec:
    scaled_dim = params.head_dim
    if params.num_layers == NUM_LAYERS_27B:
        scaled_dim = params.hidden_dim // params.num_heads[idx]
    return LayerSpec(
        num_heads=params.num_heads[idx],
        num_kv_heads=params.num_kv_heads[idx],
        head_dim=params.head_dim,
        mlp_dim=params.mlp_dim[idx],
        activation=Activation.GELU_TANH,
        rope_idx=GLOBAL_ROPE if window is None else LOCAL_ROPE,
        attn_scale=1.0 / math.sqrt(max(scaled_dim, 1)),
        window=window,
        attn_soft_cap=_soft_cap(file, "attn_logit_softcapping"),
        has_qk_norm=True,
        has_post_norms=True,
    )


def _layer_tensors(idx: int, layer: LayerSpec, hidden: int) -> list[TensorSpec]:
    q_dim = layer.num_heads * layer.head_dim
    kv_dim = layer.num_kv_heads * layer.head_dim
    shapes: list[tuple[str, Slot, tuple[int, ...]]] = [
        ("attn_norm.weight", Slot.ATTN_NORM, (hidden,)),
        ("attn_q.weight", Slot.Q, (q_dim, hidden)),
        ("attn_k.weight", Slot.K, (kv_dim, hidden)),
        ("attn_v.weight", Slot.V, (kv_dim, hidden)),
        ("attn_q_norm.weight", Slot.Q_NORM, (layer.head_dim,)),
        ("attn_k_norm.weight", Slot.K_NORM, (layer.head_dim,)),
        ("attn_output.weight", Slot.ATTN_OUTPUT, (hidden, q_dim)),
        ("post_attention_norm.weight", Slot.POST_ATTN_NORM, (hidden,)),
        ("ffn_norm.weight", Slot.MLP_NORM, (hidden,)),
        ("ffn_gate.weight", Slot.GATE, (layer.mlp_dim, hidden)),
        ("ffn_up.weight", Slot.UP, (layer.mlp_dim, hidden)),
        ("ffn_down.weight", Slot.DOWN, (hidden, layer.mlp_dim)),
        ("post_ffw_norm.weight", Slot.POST_MLP_NORM, (hidden,)),
    ]
    return [TensorSpec(f"blk.{idx}.{name}", slot, idx, shape) for name, slot, shape in shapes]


def _ropes(file: GgufFile, params: Hyperparameters) -> tuple[RopeSpec, RopeSpec]:
    """The global rope, with the file's base and scaling, and the local one, never scaled."""
    if FACTORS_TENSOR in file.tensors:
        message = "got frequency factors, which octavo does not know for gemma3"
        raise UnsupportedModel(one_line(file.source, FACTORS_TENSOR, message))
    wide = read_rope(file, RopePairing.HALVES, params.head_dim, params.context_length)
    key = f"{ARCHITECTURE}.rope.freq_base_swa"
    base = file.metadata.get_float(key, 2.0, 1e15, default=LOCAL_ROPE_BASE)
    local = inverse_frequencies(2 * len(wide.inv_freq), base)
    return wide, RopeSpec(RopePairing.HALVES, local)


def _local_layers(file: GgufFile, num_layers: int) -> tuple[bool, ...]:
    """Which layers see only the window: by a flag each, or all but the last of every period."""
    key = f"{ARCHITECTURE}.attention.sliding_window_pattern"
    if file.metadata.is_array(key):
        return file.metadata.get_bools(key, count=num_layers)
    period = file.metadata.get_int(key, 1, 2**16, default=PATTERN_PERIOD)
    return tuple(idx % period != period - 1 for idx in range(num_layers))


def _soft_cap(file: GgufFile, name: str) -> float | None:
    cap = file.metadata.get_float(f"{ARCHITECTURE}.{name}", 0.0, 1e6, default=0.0)
    return cap or None


def _float32(value: float) -> float:
    """Rounded to float32, as a float32 reference rounds this factor."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
