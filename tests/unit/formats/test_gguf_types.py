# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

from octavo.formats.gguf_types import (
    FLOAT_TYPES,
    INT_TYPES,
    LETTERS,
    SIZES,
    TENSOR_TYPES,
    ValueType,
    damaged,
    printable,
)


def test_sizes_are_those_of_the_letters():
    assert {kind: struct.calcsize("<" + letter) for kind, letter in LETTERS.items()} == SIZES
    assert len(INT_TYPES) == 8
    assert len(FLOAT_TYPES) == 2
    assert set(ValueType) - set(LETTERS) == {ValueType.STRING, ValueType.ARRAY}


def test_block_sizes_follow_from_bits_and_scales():
    half = 2  # bytes of a float16
    expected = {
        "Q4_0": half + 32 * 4 // 8,
        "Q4_1": 2 * half + 32 * 4 // 8,
        "Q5_0": half + 32 * 5 // 8,
        "Q5_1": 2 * half + 32 * 5 // 8,
        "Q8_0": half + 32,
        "Q4_K": 2 * half + 8 * 2 * 6 // 8 + 256 * 4 // 8,  # 8 scales and 8 minima of 6 bits
        "Q5_K": 2 * half + 8 * 2 * 6 // 8 + 256 * 5 // 8,
        "Q6_K": half + 16 + 256 * 6 // 8,  # 16 scales of 8 bits
    }
    by_name = {kind.name: kind for kind in TENSOR_TYPES.values()}
    assert {name: by_name[name].block_bytes for name in expected} == expected
    assert len(by_name) == len(TENSOR_TYPES)


def test_a_refusal_is_one_bounded_line():
    message = str(damaged("dir/a\nb.gguf", "key\x1b[31m\udcff", "got " + "x" * 1000))
    assert message.startswith("dir/a\\nb.gguf: key\\x1b[31m\\udcff: got xxx")
    assert message.endswith("...")
    assert message.isprintable()
    assert len(message) < 1000


def test_printable_keeps_what_prints():
    assert printable("naïve ▁the", 60) == "naïve ▁the"
    assert printable("abcdef", 5) == "ab..."
    assert printable("\n" * 100, 10) == "\\n\\n\\n\\..."
    assert printable("\n" * 10, 10) == "\\n\\n\\n\\..."
