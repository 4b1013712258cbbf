# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding: the angle per position of each pair of dims, in double precision.

Pair i of a head turns by ``position * inv_freq[i]``, with inv_freq[i] = base ** (-2 i / rotary_dim)
before any scaling. The scalings stretch a model's context: linear interpolation (Chen et al. 2023),
YaRN (Peng et al. 2023), and Llama 3's, which converters write as one factor per pair
(``rope_freqs.weight``). float32 would lose the phase at long positions: at position 131072 an
angle of relative error 2**-24 is off by 0.008 rad. So everything here is done in double.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import F32, damaged, one_line
from octavo.types.decoder_spec import RopePairing, RopeSpec
from octavo.types.errors import UnsupportedModel

FACTORS_TENSOR = "rope_freqs.weight"
BASE_MAX = 1e15
FACTOR_MAX = 1e6


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN: pairs that turn more than ``beta_fast`` times within the original context keep their
    frequency, those that turn less than ``beta_slow`` times are slowed by ``factor``, and a linear
    ramp over the pair's index joins the two."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0

    def magnitude(self) -> float:
        """What YaRN multiplies cos and sin by: longer contexts need sharper attention."""
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1.0 else 1.0


def inverse_frequencies(rotary_dim: int, base: float) -> tuple[float, ...]:
    return tuple(base ** (-2.0 * pair / rotary_dim) for pair in range(rotary_dim // 2))


def scale_linear(inv_freq: Sequence[float], factor: float) -> tuple[float, ...]:
    return tuple(value / factor for value in inv_freq)


def scale_by_factors(inv_freq: Sequence[float], factors: Sequence[float]) -> tuple[float, ...]:
    """Each pair slowed by its own factor, as a file's ``rope_freqs.weight`` gives them."""
    return tuple(value / factor for value, factor in zip(inv_freq, factors, strict=True))


def scale_yarn(
    inv_freq: Sequence[float], rotary_dim: int, base: float, yarn: YarnScaling
) -> tuple[float, ...]:
    """``yarn`` applied to the frequencies that ``inverse_frequencies(rotary_dim, base)`` gives."""

    def pair_that_turns(num_turns: float) -> float:
        turns_at_unit_frequency = yarn.original_context / (2.0 * math.pi)
        return rotary_dim * math.log(turns_at_unit_frequency / num_turns) / (2.0 * math.log(base))

    low = max(math.floor(pair_that_turns(yarn.beta_fast)), 0)
    high = min(math.ceil(pair_that_turns(yarn.beta_slow)), rotary_dim - 1)
    width = max(high - low, 0.001)  # a ramp between neighbours is a step

    def scaled(pair: int, value: float) -> float:
        slowed = min(max((pair - low) / width, 0.0), 1.0)
        return slowed * value / yarn.factor + (1.0 - slowed) * value

    return tuple(scaled(pair, value) for pair, value in enumerate(inv_freq))


def read_rope(file: GgufFile, pairing: RopePairing, head_dim: int, context: int) -> RopeSpec:
    """The rope that a file's ``<architecture>.rope.*`` keys and frequency factors describe."""
    metadata = file.metadata
    prefix = metadata.get_str("general.architecture") + ".rope"
    rotary_dim = metadata.get_int(f"{prefix}.dimension_count", 2, head_dim, default=head_dim)
    if rotary_dim % 2:
        raise damaged(
            file.source, f"{prefix}.dimension_count", f"got {rotary_dim}, wanted an even number"
        )
    base = metadata.get_float(f"{prefix}.freq_base", 2.0, BASE_MAX, default=10000.0)
    inv_freq = inverse_frequencies(rotary_dim, base)
    if FACTORS_TENSOR in file.tensors:
        inv_freq = scale_by_factors(inv_freq, _read_factors(file, rotary_dim // 2))
    magnitude = 1.0
    kind = _scaling_kind(file, prefix)
    if kind == "linear":
        inv_freq = scale_linear(inv_freq, _linear_factor(file, prefix))
    elif kind == "yarn":
        yarn = _read_yarn(file, prefix, context)
        inv_freq = scale_yarn(inv_freq, rotary_dim, base, yarn)
        magnitude = yarn.magnitude() * _attention_factor(file, prefix)
    return RopeSpec(pairing, inv_freq, magnitude)


def _scaling_kind(file: GgufFile, prefix: str) -> str:
    key = f"{prefix}.scaling.type"
    has_old_key = f"{prefix}.scale_linear" in file.metadata
    kind = file.metadata.get_str(key, default="linear" if has_old_key else "none")
    if kind not in ("none", "linear", "yarn"):
        message = f"got {kind[:40]!r}, octavo has none, linear and yarn"
        raise UnsupportedModel(one_line(file.source, key, message))
    return kind


def _linear_factor(file: GgufFile, prefix: str) -> float:
    new, old = f"{prefix}.scaling.factor", f"{prefix}.scale_linear"
    key = old if old in file.metadata and new not in file.metadata else new
    return file.metadata.get_float(key, 1.0, FACTOR_MAX)


def _read_yarn(file: GgufFile, prefix: str, context: int) -> YarnScaling:
    metadata = file.metadata
    for key, neutral in (("yarn_log_multiplier", 0.0), ("yarn_ext_factor", 1.0)):
        full_key = f"{prefix}.scaling.{key}"
        value = metadata.get_float(full_key, -FACTOR_MAX, FACTOR_MAX, default=neutral)
        if value != neutral:
            message = f"got {value:g}, octavo's YaRN has only {neutral:g}"
            raise UnsupportedModel(one_line(file.source, full_key, message))
    scaling = f"{prefix}.scaling"
    return YarnScaling(
        factor=metadata.get_float(f"{scaling}.factor", 1.0, FACTOR_MAX),
        original_context=metadata.get_int(
            f"{scaling}.original_context_length", 1, 2**30, default=context
        ),
        beta_fast=metadata.get_float(f"{scaling}.yarn_beta_fast", 1e-3, 1e6, default=32.0),
        beta_slow=metadata.get_float(f"{scaling}.yarn_beta_slow", 1e-3, 1e6, default=1.0),
    )


def _attention_factor(file: GgufFile, prefix: str) -> float:
    """What a file multiplies YaRN's own magnitude by; both keys are in use."""
    product = 1.0
    for key in ("attn_factor", "yarn_attn_factor"):
        product *= file.metadata.get_float(f"{prefix}.scaling.{key}", 1e-3, 1e3, default=1.0)
    return product


def _read_factors(file: GgufFile, num_pairs: int) -> array[float]:
    info = file.tensors[FACTORS_TENSOR]
    if info.ggml_type != F32 or info.shape != (num_pairs,):
        message = f"got {info.type_name} of shape {info.shape}, wanted F32 of shape ({num_pairs},)"
        raise damaged(file.source, FACTORS_TENSOR, message)
    factors = array("f")
    factors.frombytes(file.tensor_data(FACTORS_TENSOR))
    for factor in factors:
        if not 1.0 / FACTOR_MAX <= factor <= FACTOR_MAX:  # false for NaN too
            message = f"got {factor}, wanted factors in [{1.0 / FACTOR_MAX:g}, {FACTOR_MAX:g}]"
            raise damaged(file.source, FACTORS_TENSOR, message)
    return factors
