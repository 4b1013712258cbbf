# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import struct
from array import array

import pytest

from gguf_writer import GgufWriter, Typed
from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import LETTERS, ValueType
from octavo.formats.metadata import Metadata
from octavo.types.errors import BadCheckpoint


def parse(values: dict[str, object], **damage: object) -> Metadata:
    writer = GgufWriter(values, **damage)  # type: ignore[arg-type]
    return GgufFile("tiny.gguf", memoryview(writer.build())).metadata


def test_every_scalar_type_comes_back():
    values: dict[str, object] = {
        kind.name: Typed(kind, 1.5 if LETTERS[kind] in "fd" else 1) for kind in LETTERS
    }
    metadata = parse(values)
    assert dict(metadata) == {kind.name: 1.5 if LETTERS[kind] in "fd" else 1 for kind in LETTERS}
    assert metadata["BOOL"] is True
    assert parse({"k": Typed(ValueType.INT64, -(2**63))})["k"] == -(2**63)


def test_every_array_type_comes_back():
    for kind, letter in LETTERS.items():
        got = parse({"k": Typed(ValueType.ARRAY, [0, 1, 1], kind)})["k"]
        assert got == array(letter, [0, 1, 1])


def test_strings_come_one_by_one_or_all_at_once():
    texts = ["", "a", "é", "𝄞", " the "]
    strings = parse({"k": texts}).get_string_array("k")
    assert list(strings) == texts
    assert [strings[i] for i in range(-5, 5)] == texts + texts
    assert strings[1:3] == texts[1:3]
    assert strings.raw(3) == "𝄞".encode()
    assert strings.num_text_bytes == sum(len(text.encode()) for text in texts)
    assert parse({"k": texts}).get_strings("k") == texts
    with pytest.raises(IndexError):
        strings[5]
    assert parse({"k": Typed(ValueType.ARRAY, [], ValueType.STRING)}).get_strings("k") == []


def test_bytes_that_are_no_utf8_survive_as_lone_surrogates():
    metadata = parse({"one": b"\xffA", "many": [b"\x80", b"ok"]})
    assert metadata.get_str("one") == metadata["one"] == "\udcffA"
    assert metadata.get_strings("many")[0].encode("utf-8", "surrogateescape") == b"\x80"


def test_nested_arrays_come_as_tuples():
    inner = [
        Typed(ValueType.ARRAY, [1, 2], ValueType.UINT8),
        Typed(ValueType.ARRAY, ["x"], ValueType.STRING),
    ]
    got = parse({"k": Typed(ValueType.ARRAY, inner, ValueType.ARRAY)})["k"]
    assert isinstance(got, tuple)
    assert [list(part) for part in got] == [[1, 2], ["x"]]  # type: ignore[arg-type]


def test_getters_take_what_they_name():
    metadata = parse({"i": 7, "f": 0.5, "s": "x", "n": [1, 2], "y": [True]})
    assert metadata.get_int("i", 0, 7) == 7
    assert metadata.get_float("f", 0.0, 1.0) == 0.5
    assert metadata.get_str("s") == "x"
    assert list(metadata.get_ints("n", 1, 2, count=2)) == [1, 2]
    assert metadata.get_bools("y", count=1) == (True,)
    assert metadata.is_array("n")
    assert not metadata.is_array("i")
    assert not metadata.is_array("none")
    assert metadata.get_int("none", 0, 9, default=3) == 3
    assert metadata.get_float("none", 0.0, 9.0, default=3.0) == 3.0
    assert metadata.get_str("none", default="d") == "d"


@pytest.mark.parametrize("stored", ["text", True, 1.0, [1], ["x"], 8, -1])
def test_an_integer_is_an_integer_in_range(stored: object):
    value = Typed(ValueType.INT8, -1) if stored == -1 else stored
    with pytest.raises(
        BadCheckpoint, match=r"^tiny.gguf: k: got .*, wanted an integer in \[0, 7\]$"
    ):
        parse({"k": value}).get_int("k", 0, 7)


@pytest.mark.parametrize("stored", ["text", True, 1, [1.0], math.nan, math.inf, -math.inf, 1.5])
def test_a_float_is_a_finite_float_in_range(stored: object):
    with pytest.raises(BadCheckpoint, match=r"^tiny.gguf: k: got .*, wanted a float in \[0, 1\]$"):
        parse({"k": stored}).get_float("k", 0.0, 1.0)


def test_other_getters_refuse_other_types_and_missing_keys():
    metadata = parse({"i": 1, "ints": [1, 9], "strings": ["x"]})
    for call, match in (
        (lambda: metadata.get_str("i"), "i: got the uint32 1, wanted a string"),
        (
            lambda: metadata.get_strings("ints"),
            "ints: got an array of 2 uint32, wanted an array of s",
        ),
        (lambda: metadata.get_ints("strings", 0, 1), "strings: got an array of 1 string, wanted"),
        (lambda: metadata.get_ints("ints", 0, 8), r"ints: got 9, wanted integers in \[0, 8\]"),
        (lambda: metadata.get_ints("ints", 0, 9, count=3), "ints: got 2 elements, wanted 3"),
        (lambda: metadata.get_bools("ints", count=2), "ints: got an array of 2 uint32, wanted"),
        (lambda: metadata.get_int("none", 0, 1), "none: got no such key, wanted an integer"),
        (lambda: metadata.get_str("none"), "none: got no such key, wanted a string"),
    ):
        with pytest.raises(BadCheckpoint, match=match):
            call()


def test_long_and_odd_strings_are_shown_short_and_on_one_line():
    with pytest.raises(BadCheckpoint) as caught:
        parse({"k": "line\nbreak " * 1000}).get_int("k", 0, 1)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def raw_array(element: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IIQ", 9, element, count) + body


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (struct.pack("<II", 13, 0), "k: got value type 13, the format has 0 to 12"),
        (struct.pack("<IB", 7, 2), "k: got 2 for a bool, wanted 0 or 1"),
        (struct.pack("<IQ", 8, 5) + b"four", "k: got 4 bytes to the end of file, wanted 5"),
        (struct.pack("<IQ", 8, 2**64 - 1), "k: got a string of 18446744073709551615 bytes"),
        (raw_array(99, 0), "k: got value type 99"),
        (raw_array(4, 2, b"1234567"), "k: got 2, but the 7 bytes to the end of file"),
        (raw_array(0, 2**64 - 1), "k: got 18446744073709551615, octavo reads at most"),
        (raw_array(8, 1), "k: got 1, but the 0 bytes to the end"),
        (raw_array(8, 2**24 + 1), "k: got 16777217, octavo reads at most 16777216"),
        (raw_array(8, 2, struct.pack("<Q", 4) + b"text1234"), r"k\[1\]: got the end of file"),
        (raw_array(8, 1, struct.pack("<Q", 2**63)), r"k\[0\]: got a string of 9223372036854775808"),
        (raw_array(8, 1, struct.pack("<Q", 5) + b"text"), r"k\[0\]: got a string of 5 bytes"),
        (raw_array(9, 2**16 + 1, bytes(12)), "k: got 65537, octavo reads at most 65536"),
        (raw_array(9, 1, bytes(11)), "k: got 1, but the 11 bytes to the end"),
        (raw_array(9, 1, struct.pack("<IQ", 9, 1) * 4 + bytes(12)), "k: got arrays nested 5 deep"),
    ],
)
def test_a_damaged_value_is_refused(value: bytes, match: str):
    with pytest.raises(BadCheckpoint, match=r"^tiny.gguf: " + match) as caught:
        parse({}, raw_keys=[(b"k", value)])
    assert "\n" not in str(caught.value)


def test_an_array_of_empty_strings_cannot_fill_the_memory():
    count = 500_000  # 4 MB of file, 42 MB of list
    metadata = parse({}, raw_keys=[(b"k", raw_array(8, count, bytes(8 * count)))])
    assert len(metadata.get_string_array("k")) == count
    with pytest.raises(BadCheckpoint, match="k: got 500000 strings that take up to"):
        metadata.get_strings("k")
