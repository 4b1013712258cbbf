# SPDX-License-Identifier: Apache-2.0
"""A decoder in float64 and plain numpy, straight from the text of ``DecoderSpec``: the oracle.

The one rounding that it models is that of keys and values to half precision, since the KV cache
stores them so. ``round_kv=False`` leaves even that out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.types.decoder_spec import Activation, DecoderSpec, LayerSpec, RopePairing, Slot

Array = NDArray[np.float64]
Weights = dict[tuple[Slot, int | None], Array]


def logits(
    spec: DecoderSpec, weights: Weights, token_ids: list[int], *, round_kv: bool = True
) -> Array:
    """[tokens, vocab]: row i predicts the token after the first i + 1."""
    x = weights[Slot.EMBEDDING, None][token_ids] * spec.embedding_scale
    for idx, layer in enumerate(spec.layers):
        of_layer = {slot: value for (slot, at), value in weights.items() if at == idx}
        x = x + _attention(spec, layer, of_layer, x, round_kv)
        x = x + _mlp(spec, layer, of_layer, x)
    output = weights[Slot.EMBEDDING if spec.tied_output else Slot.OUTPUT, None]
    y = _norm(x, weights[Slot.OUTPUT_NORM, None], spec.norm_eps) @ output.T
    return _soft_cap(y * spec.logit_scale, spec.logit_soft_cap)


def logprobs(
    spec: DecoderSpec, weights: Weights, token_ids: list[int], *, round_kv: bool = True
) -> Array:
    y = logits(spec, weights, token_ids, round_kv=round_kv)
    y = y - y.max(axis=1, keepdims=True)
    return np.asarray(y - np.log(np.exp(y).sum(axis=1, keepdims=True)))


def _norm(x: Array, weight: Array, eps: float) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight)


def _soft_cap(x: Array, cap: float | None) -> Array:
    return x if cap is None else np.asarray(cap * np.tanh(x / cap))


def _attention(
    spec: DecoderSpec, layer: LayerSpec, w: dict[Slot, Array], x: Array, round_kv: bool
) -> Array:
    n = len(x)
    h = _norm(x, w[Slot.ATTN_NORM], spec.norm_eps)
    q, k, v = h @ w[Slot.Q].T, h @ w[Slot.K].T, h @ w[Slot.V].T
    if layer.has_qkv_bias:
        q, k, v = q + w[Slot.Q_BIAS], k + w[Slot.K_BIAS], v + w[Slot.V_BIAS]
    q = q.reshape(n, layer.num_heads, layer.head_dim)
    k = k.reshape(n, layer.num_kv_heads, layer.head_dim)
    v = v.reshape(n, layer.num_kv_heads, layer.head_dim)
    if layer.has_qk_norm:
        q = _norm(q, w[Slot.Q_NORM], spec.norm_eps)
        k = _norm(k, w[Slot.K_NORM], spec.norm_eps)
    q, k = _rope(spec, layer, q), _rope(spec, layer, k)
    if round_kv:
        k, v = (np.asarray(a.astype(np.float16), np.float64) for a in (k, v))
    seen = _mask(n, layer.window)
    out = np.empty_like(q)
    for head in range(layer.num_heads):
        of_head = head // (layer.num_heads // layer.num_kv_heads)
        scores = _soft_cap(q[:, head] @ k[:, of_head].T * layer.attn_scale, layer.attn_soft_cap)
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = p @ v[:, of_head] / p.sum(axis=1, keepdims=True)
    y = out.reshape(n, -1) @ w[Slot.ATTN_OUTPUT].T
    return _norm(y, w[Slot.POST_ATTN_NORM], spec.norm_eps) if layer.has_post_norms else y


def _mask(n: int, window: int | None) -> NDArray[np.bool_]:
    age = np.arange(n)[:, None] - np.arange(n)[None, :]
    seen = age >= 0
    return seen if window is None else seen & (age < window)


def _rope(spec: DecoderSpec, layer: LayerSpec, heads: Array) -> Array:
    rope = spec.ropes[layer.rope_idx]
    num_pairs = len(rope.inv_freq)
    angle = np.arange(len(heads))[:, None, None] * np.asarray(rope.inv_freq)
    cos, sin = np.cos(angle) * rope.magnitude, np.sin(angle) * rope.magnitude
    if rope.pairing is RopePairing.INTERLEAVED:
        first, second = slice(0, 2 * num_pairs, 2), slice(1, 2 * num_pairs, 2)
    else:
        first, second = slice(0, num_pairs), slice(num_pairs, 2 * num_pairs)
    a, b = heads[..., first], heads[..., second]
    out = heads.copy()
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out


def _mlp(spec: DecoderSpec, layer: LayerSpec, w: dict[Slot, Array], x: Array) -> Array:
    h = _norm(x, w[Slot.MLP_NORM], spec.norm_eps)
    gate, up = h @ w[Slot.GATE].T, h @ w[Slot.UP].T
    if layer.activation is Activation.SILU:
        active = gate / (1 + np.exp(-gate))
    else:
        inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
        active = 0.5 * gate * (1 + np.tanh(inner))
    y = (active * up) @ w[Slot.DOWN].T
    return _norm(y, w[Slot.POST_MLP_NORM], spec.norm_eps) if layer.has_post_norms else y
