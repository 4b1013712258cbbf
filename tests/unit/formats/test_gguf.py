# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from pathlib import Path

import pytest

from gguf_writer import GgufWriter
from octavo.formats.gguf import GgufFile
from octavo.types.errors import BadCheckpoint, ModelNotFound, UnsupportedModel


def parse(writer: GgufWriter) -> GgufFile:
    return GgufFile("tiny.gguf", memoryview(writer.build()))


def refuse(writer: GgufWriter, match: str) -> None:
    with pytest.raises(BadCheckpoint, match=match) as caught:
        parse(writer)
    message = str(caught.value)
    assert message.startswith("tiny.gguf: ")
    assert "\n" not in message


def test_a_file_gives_back_what_was_written(tmp_path: Path):
    writer = GgufWriter({"general.architecture": "llama"})
    writer.add_tensor("a", (4, 2), 0, struct.pack("<8f", *range(8)))
    writer.add_tensor("b", (32, 3), 8, bytes(range(102)))
    path = tmp_path / "model.gguf"
    path.write_bytes(writer.build())
    with GgufFile.open(path) as file:
        assert (file.version, file.alignment, file.source) == (3, 32, str(path))
        assert file.num_bytes == path.stat().st_size
        assert file.metadata["general.architecture"] == "llama"
        assert list(file.tensors) == ["a", "b"]
        assert file.tensors["b"].shape == (32, 3)
        assert file.tensors["b"].type_name == "Q8_0"
        assert file.tensors["b"].num_elements == 96
        assert file.tensor_data("a").cast("f").tolist() == list(range(8))
        assert bytes(file.tensor_data("b")) == bytes(range(102))
        assert file.tensor_data("b").readonly


def test_tensor_data_is_a_view_and_outlives_close(tmp_path: Path):
    writer = GgufWriter()
    writer.add_tensor("a", (4,), 0, b"0123456789abcdef")
    path = tmp_path / "model.gguf"
    path.write_bytes(writer.build())
    file = GgufFile.open(path)
    view = file.tensor_data("a")
    assert view.obj is file.tensor_data("a").obj  # the map, not a copy
    file.prefetch()
    file.close()
    file.close()
    assert bytes(view) == b"0123456789abcdef"
    assert not file.tensors
    assert not file.metadata


def test_version_2_is_read_and_others_are_refused_by_name():
    assert parse(GgufWriter(version=2)).version == 2
    for version in (0, 1, 4, 2**32 - 1):
        with pytest.raises(UnsupportedModel, match=rf"version: got {version}, octavo reads"):
            parse(GgufWriter(version=version))
    big_endian = int.from_bytes((3).to_bytes(4, "big"), "little")
    with pytest.raises(UnsupportedModel, match="got 3 in big-endian order"):
        parse(GgufWriter(version=big_endian))


def test_alignment_moves_the_data():
    writer = GgufWriter({"general.alignment": 64}, alignment=64)
    writer.add_tensor("a", (1,), 0, b"aaaa")
    writer.add_tensor("b", (1,), 0, b"bbbb")
    file = parse(writer)
    assert file.tensors["b"].offset - file.tensors["a"].offset == 64
    assert file.tensors["a"].offset % 64 == 0
    assert bytes(file.tensor_data("b")) == b"bbbb"


@pytest.mark.parametrize("alignment", [0, 1, 4, 24, 33, 2**21, 2**31])
def test_a_bad_alignment_is_refused(alignment: int):
    refuse(GgufWriter({"general.alignment": alignment}), f"general.alignment: got .*{alignment}")


def test_an_alignment_of_another_type_is_refused():
    refuse(GgufWriter({"general.alignment": "32"}), "general.alignment: got the string '32'")


def test_what_is_no_gguf_file_is_refused(tmp_path: Path):
    refuse(GgufWriter(magic=b"GGML"), "magic: got b'GGML', wanted b'GGUF'")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    with pytest.raises(BadCheckpoint, match=r"empty\.gguf: file: got an empty file"):
        GgufFile.open(empty)
    with pytest.raises(BadCheckpoint, match="file: cannot be read: Is a directory"):
        GgufFile.open(tmp_path)
    with pytest.raises(BadCheckpoint, match="file: got something that is not a regular file"):
        GgufFile.open("/dev/zero")
    with pytest.raises(BadCheckpoint, match="file: cannot be read"):
        GgufFile.open("a\0b")
    with pytest.raises(ModelNotFound, match=r"none\.gguf: file: there is no such file"):
        GgufFile.open(tmp_path / "none.gguf")


def test_duplicate_names_are_refused():
    writer = GgufWriter({"k": 1}, raw_keys=[(b"k", struct.pack("<II", 4, 2))])
    refuse(writer, "k: got the key twice")
    writer = GgufWriter()
    writer.add_tensor("t", (1,))
    writer.add_tensor("t", (1,))
    refuse(writer, "t: got the tensor twice")


@pytest.mark.parametrize("name", [b"", b"two words\n", b"caf\xc3\xa9", b"\xff\xfe", b"a\0b"])
def test_odd_key_names_are_refused(name: bytes):
    refuse(GgufWriter(raw_keys=[(name, struct.pack("<II", 4, 2))]), r"key\[0\]: got the name b")


def test_odd_tensor_names_are_refused_or_shown_on_one_line():
    for name in (b"", b"\xff", b"n" * 257):
        writer = GgufWriter()
        writer.add_tensor(name, (1,))
        refuse(writer, r"tensor\[0\]: got")
    writer = GgufWriter()
    writer.add_tensor(b"two\nlines", (1,)).offset = 1
    refuse(writer, r"two\\nlines: got offset 1")


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ((), "got 0 dimensions, wanted 1 to 4"),
        ((1, 1, 1, 1, 1), "got 5 dimensions"),
        ((4, 0), r"got shape \(4, 0\)"),
        ((2**63, 2**63, 2**63, 2**63), r"got \d+ bytes at offset 0, but the file holds 4 bytes"),
    ],
)
def test_bad_shapes_are_refused(shape: tuple[int, ...], match: str):
    writer = GgufWriter()
    writer.add_tensor("t", shape, 0, b"data")
    refuse(writer, "t: " + match)


@pytest.mark.parametrize("number", [4, 5, 31, 36, 41, 1000, 2**32 - 1])
def test_unknown_tensor_types_are_refused(number: int):
    writer = GgufWriter()
    writer.add_tensor("t", (32,), 0).ggml_type = number
    refuse(writer, f"t: got tensor type {number}, ")


def test_rows_are_whole_blocks():
    writer = GgufWriter()
    writer.add_tensor("t", (288, 2), 12, b"data")
    refuse(writer, "t: got rows of 288 elements, wanted multiples of 256 for Q4_K")


def test_offsets_are_aligned_inside_the_file_and_apart():
    writer = GgufWriter()
    writer.add_tensor("a", (16,))
    b = writer.add_tensor("b", (16,))
    writer.add_tensor("c", (16,)).offset = 128
    assert parse(writer).tensors["b"].num_bytes == 64
    b.offset = 65
    refuse(writer, "b: got offset 65, wanted a multiple of 32")
    b.offset = 32
    refuse(writer, "b: got data that overlaps a's")
    for offset in (2**20, 2**63, 2**64 - 32):
        b.offset = offset
        refuse(writer, f"b: got 64 bytes at offset {offset}, but the file holds 192 bytes")


def test_gaps_between_tensors_are_fine():
    writer = GgufWriter()
    writer.add_tensor("a", (1,), 0, b"aaaa")
    writer.add_tensor("b", (1,), 0, b"bbbb").offset = 64
    assert bytes(parse(writer).tensor_data("b")) == b"bbbb"


def test_counts_are_held_against_the_file_before_anything_is_built():
    refuse(GgufWriter(num_tensors=1), "tensor_count: got 1, but the 8 bytes to the end")
    refuse(GgufWriter(num_tensors=2**64 - 1), "tensor_count: got 18446744073709551615, octavo")
    refuse(GgufWriter(num_keys=1), "metadata_kv_count: got 1, but the 0 bytes to the end")
    refuse(GgufWriter(num_keys=2**40), "metadata_kv_count: got 1099511627776, octavo reads at most")
