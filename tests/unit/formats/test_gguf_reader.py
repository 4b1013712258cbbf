# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from itertools import pairwise

import pytest

from gguf_writer import Typed, encode
from octavo.formats.gguf_reader import HeaderReader
from octavo.formats.gguf_types import ValueType
from octavo.types.errors import BadCheckpoint


def reader(data: bytes, *, strings_max: int = 100) -> HeaderReader:
    return HeaderReader("tiny.gguf", memoryview(data), strings_max=strings_max)


def test_the_position_follows_what_was_read():
    values = [
        7,
        "text",
        ["a", "", "bcd"],
        [1, 2, 3],
        Typed(ValueType.ARRAY, [[1], [2]], ValueType.ARRAY),
    ]
    data = b"".join(map(encode, values))
    cursor = reader(data)
    kinds = [cursor.value("value").kind for _ in values]
    assert kinds == [ValueType.UINT32, ValueType.STRING] + [ValueType.ARRAY] * 3
    assert cursor.position == len(data)


def test_a_refused_read_does_not_move():
    cursor = reader(b"abc")
    for read in (cursor.u32, cursor.u64):
        with pytest.raises(BadCheckpoint, match="field: got 3 bytes to the end of file, wanted"):
            read("field")
        assert cursor.position == 0


def test_text_starts_point_at_each_text():
    data = encode(["ab", "", "c"])
    entry = reader(data).value("k")
    assert entry.text_starts is not None
    starts = list(entry.text_starts)
    texts = [data[begin : end - 8] for begin, end in pairwise(starts)]
    assert texts == [b"ab", b"", b"c"]


def test_arrays_of_strings_share_one_budget():
    array_of_three = struct.pack("<IIQ", 9, 8, 3) + bytes(24)
    cursor = reader(array_of_three * 2, strings_max=5)
    assert cursor.value("first").length == 3
    with pytest.raises(BadCheckpoint, match="second: got 3, octavo reads at most 2"):
        cursor.value("second")


def test_nested_arrays_share_one_budget():
    half = struct.pack("<IIQ", 9, 9, 2**15 + 1) + struct.pack("<IQ", 0, 0) * (2**15 + 1)
    cursor = reader(half * 2)
    assert cursor.value("first").length == 2**15 + 1
    with pytest.raises(BadCheckpoint, match="second: got 32769, octavo reads at most 32767"):
        cursor.value("second")
