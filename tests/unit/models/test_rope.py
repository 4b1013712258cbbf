# SPDX-License-Identifier: Apache-2.0
"""Every scaling against an independent numpy version of its published formula, in float64.

Both sides compute in double with a handful of operations (power, divisions, a blend), each within
one unit of rounding or two: 16 units, 16 * 2**-52 = 4e-15 relative, bounds the difference.
"""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from octavo.formats.gguf import GgufFile
from octavo.models.rope import (
    YarnScaling,
    inverse_frequencies,
    read_rope,
    scale_by_factors,
    scale_linear,
    scale_yarn,
)
from octavo.types.decoder_spec import RopePairing, RopeSpec
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tiny_gguf import tiny_llama

BOUND = 16 * 2.0**-52


def assert_close(actual: object, expected: np.ndarray) -> None:
    got = np.asarray(actual, np.float64)
    assert got.shape == expected.shape
    worst = np.max(np.abs(got / expected - 1.0))
    assert worst <= BOUND, f"off by {worst:.3g}, bound {BOUND:.3g}"


def plain(dim: int, base: float) -> np.ndarray:
    return 1.0 / base ** (np.arange(0, dim, 2, dtype=np.float64) / dim)


def numpy_yarn(dim: int, base: float, factor: float, context: int) -> np.ndarray:
    """Interpolated and extrapolated frequencies, mixed by a ramp from beta 32 to beta 1."""

    def correction(rotations: float) -> float:
        return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low, high = math.floor(correction(32.0)), math.ceil(correction(1.0))
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    keep = 1 - ramp
    return plain(dim, base) / factor * (1 - keep) + plain(dim, base) * keep


@pytest.mark.parametrize("dim", [2, 64, 128, 256])
@pytest.mark.parametrize("base", [1e4, 1e5, 5e5, 1e6])
def test_every_scaling_matches_its_formula(dim: int, base: float):
    inv_freq = inverse_frequencies(dim, base)
    assert_close(inv_freq, plain(dim, base))
    assert_close(scale_linear(inv_freq, 8.0), plain(dim, base) / 8.0)
    factors = [1.0 + pair for pair in range(dim // 2)]
    assert_close(scale_by_factors(inv_freq, factors), plain(dim, base) / np.array(factors))
    if dim > 2:  # with one pair the published ramp has no width
        yarn = scale_yarn(inv_freq, dim, base, YarnScaling(4.0, 32768))
        assert_close(yarn, numpy_yarn(dim, base, 4.0, 32768))


def test_the_bound_catches_one_wrong_frequency():
    wrong = list(inverse_frequencies(64, 1e4))
    wrong[13] *= 1.0 + 1e-12
    with pytest.raises(AssertionError, match="off by 1e-12"):
        assert_close(wrong, plain(64, 1e4))


def test_yarn_magnitude():
    assert YarnScaling(4.0, 4096).magnitude() == pytest.approx(1.0 + 0.1 * math.log(4.0), rel=BOUND)
    assert YarnScaling(1.0, 4096).magnitude() == 1.0


def rope_of(keys: dict[str, object], factors: list[float] | None = None) -> RopeSpec:
    writer = tiny_llama()
    writer.metadata |= {f"llama.rope.{key}": value for key, value in keys.items()}
    if factors is not None:
        writer.add_tensor(
            "rope_freqs.weight", (len(factors),), 0, struct.pack(f"<{len(factors)}f", *factors)
        )
    file = GgufFile("tiny.gguf", memoryview(writer.build()))
    return read_rope(file, RopePairing.INTERLEAVED, 16, 128)


def test_a_file_without_scaling_has_plain_frequencies():
    rope = rope_of({"freq_base": 5e5})
    assert_close(rope.inv_freq, plain(16, 5e5))
    assert (rope.pairing, rope.magnitude) == (RopePairing.INTERLEAVED, 1.0)
    assert len(rope_of({"dimension_count": 8}).inv_freq) == 4


def test_a_files_scaling_is_applied():
    for keys in (
        {"scaling.type": "linear", "scaling.factor": 4.0},
        {"scale_linear": 4.0},
    ):
        assert_close(rope_of(keys).inv_freq, plain(16, 1e4) / 4.0)
    factors = [1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert_close(rope_of({}, factors).inv_freq, plain(16, 1e4) / np.array(factors))
    yarn = {
        "scaling.type": "yarn",
        "scaling.factor": 4.0,
        "scaling.original_context_length": 1024,
    }
    rope = rope_of(yarn)
    assert_close(rope.inv_freq, numpy_yarn(16, 1e4, 4.0, 1024))
    assert rope.magnitude == pytest.approx(1.0 + 0.1 * math.log(4.0), rel=BOUND)
    assert rope_of(yarn | {"scaling.attn_factor": 0.5}).magnitude == rope.magnitude / 2


def test_bad_rope_values_are_refused():
    for keys, match in (
        ({"freq_base": 0.0}, "llama.rope.freq_base: got the float32 0.0"),
        ({"freq_base": math.nan}, "llama.rope.freq_base: got the float32 nan"),
        ({"dimension_count": 7}, "llama.rope.dimension_count: got 7, wanted an even"),
        ({"dimension_count": 18}, "llama.rope.dimension_count: got the uint32 18"),
        ({"scaling.type": "linear"}, "llama.rope.scaling.factor: got no such key"),
        ({"scaling.type": "linear", "scaling.factor": 0.0}, "scaling.factor: got the float32 0.0"),
    ):
        with pytest.raises(BadCheckpoint, match=match):
            rope_of(keys)
    for factors in ([1.0] * 7, [1.0] * 7 + [0.0], [1.0] * 7 + [math.nan]):
        with pytest.raises(BadCheckpoint, match=r"rope_freqs.weight: got"):
            rope_of({}, factors)


def test_scalings_that_octavo_does_not_know_are_refused():
    for keys in (
        {"scaling.type": "longrope"},
        {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.yarn_log_multiplier": 0.1},
    ):
        with pytest.raises(UnsupportedModel, match=r"llama.rope.scaling.\w+: got"):
            rope_of(keys)
