# SPDX-License-Identifier: Apache-2.0
"""A decoder as data. An architecture file turns a checkpoint's metadata into one of these, and an
executor interprets it (native on the CPU); there is no per-model arithmetic anywhere.

For one token with residual stream x, layer by layer:

    a = attention(attn_norm(x));  x += post_attn_norm(a) if the layer has one else a
    m = mlp(mlp_norm(x));         x += post_mlp_norm(m)  if the layer has one else m

attention: q, k, v = matrices of the normed x (plus biases); q_norm, k_norm per head if present;
then RoPE; scores = scale * q.k, soft-capped, causal, within ``window``; heads concatenated;
output matrix. mlp: down(activation(gate(x)) * up(x)). After the last layer: output_norm, output
matrix, logit scale, logit soft-cap. The embedding row is multiplied by ``embedding_scale``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RopePairing(Enum):
    """Which two dims of a head turn together: (2i, 2i+1), or (i, i + rotary_dim/2)."""

    INTERLEAVED = "interleaved"
    HALVES = "halves"


class Activation(Enum):
    """What the gate of an MLP goes through: x * sigmoid(x), or GELU in its tanh form."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """``inv_freq[i]`` is the angle in radians per position of pair i, every scaling (linear, Llama
    3,
    YaRN, frequency factors of the file) already applied; ``models/rope.py`` computes it in double
    precision. ``magnitude`` multiplies cos and sin (YaRN's attention factor; else 1).
    """

    pairing: RopePairing
    inv_freq: tuple[float, ...]
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer. ``rope_idx`` points into ``DecoderSpec.ropes``; ``window`` None sees
    everything."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_dim: int
    activation: Activation
    rope_idx: int
    attn_scale: float
    window: int | None = None
    attn_soft_cap: float | None = None
    has_qk_norm: bool = False
    has_post_norms: bool = False
    has_qkv_bias: bool = False


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """A decoder-only transformer: everything but the weights."""

    architecture: str
    hidden_dim: int
    vocab_size: int
    context_length: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    ropes: tuple[RopeSpec, ...]
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_soft_cap: float | None = None
    tied_output: bool = False

    @property
    def window(self) -> int | None:
        """How many positions back a token is seen by some layer; None where one sees everything.

        The layers share a block table, so a block goes when the last of them has no use for it.
        """
        windows = [layer.window for layer in self.layers]
        return None if None in windows else max(filter(None, windows), default=None)

    def kv_bytes_per_token(self) -> int:
        """Bytes of float16 K and V that one token adds in all layers together."""
        return sum(4 * layer.num_kv_heads * layer.head_dim for layer in self.layers)


class Slot(Enum):
    """Where a tensor goes. Matrices are [rows, cols] = [out, in]; vectors are float32 on
    arrival."""

    EMBEDDING = "embedding"  # matrix [vocab, hidden]; serves as OUTPUT too when tied
    OUTPUT = "output"  # matrix [vocab, hidden]
    OUTPUT_NORM = "output_norm"  # vector [hidden]
    ATTN_NORM = "attn_norm"
    Q = "q"  # matrix [num_heads * head_dim, hidden]
    K = "k"  # matrix [num_kv_heads * head_dim, hidden]
    V = "v"
    Q_BIAS = "q_bias"
    K_BIAS = "k_bias"
    V_BIAS = "v_bias"
    Q_NORM = "q_norm"  # vector [head_dim]
    K_NORM = "k_norm"
    ATTN_OUTPUT = "attn_output"  # matrix [hidden, num_heads * head_dim]
    POST_ATTN_NORM = "post_attn_norm"
    MLP_NORM = "mlp_norm"
    GATE = "gate"  # matrix [mlp_dim, hidden]
    UP = "up"
    DOWN = "down"  # matrix [hidden, mlp_dim]
    POST_MLP_NORM = "post_mlp_norm"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that the checkpoint must hold under ``name``. ``shape`` is (cols,) or (rows,
    cols)."""

    name: str
    slot: Slot
    layer_idx: int | None
    shape: tuple[int, ...]
