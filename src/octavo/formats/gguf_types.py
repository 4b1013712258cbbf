# SPDX-License-Identifier: Apache-2.0
"""The numbers that a GGUF file speaks in: value types, tensor types, and the limits octavo sets.

The limits are far above any model in use and far below what would hurt: with them, reading a header
costs memory in proportion to the file and never more than the file's size plus a few megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from octavo.types.errors import BadCheckpoint

MAGIC = b"GGUF"
VERSIONS = (2, 3)  # 3 differs from 2 only in allowing big-endian files, which octavo refuses
DEFAULT_ALIGNMENT = 32
ALIGNMENT_MIN, ALIGNMENT_MAX = 8, 2**20

KEYS_MAX = 2**16  # a key costs some 300 bytes here and can be 14 in the file: 20 MB at most
TENSORS_MAX = 2**15  # some 500 bytes each: 16 MB at most; models in use have below 2,000
KEY_BYTES_MAX = 2**16 - 1  # the format's own limit
TENSOR_NAME_BYTES_MAX = 256  # the format says 64; some writers were built with 128
STRING_BYTES_MAX = 2**20  # chat templates, the longest strings in use, stay below 100 KB
STRINGS_MAX = 2**24  # in all arrays together; bounds the time of the walk over their lengths
NESTED_ARRAYS_MAX = 2**16  # inner arrays, in all
ARRAY_DEPTH_MAX = 4
DIMS_MAX = 4


class ValueType(IntEnum):
    """How a metadata value is stored."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# The letter of each fixed-size type, the same in ``struct`` (after "<") and in ``array``.
LETTERS: dict[ValueType, str] = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "B",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}
SIZES: dict[ValueType, int] = {
    kind: {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "f": 4, "Q": 8, "q": 8, "d": 8}[letter]
    for kind, letter in LETTERS.items()
}
FLOAT_TYPES = frozenset({ValueType.FLOAT32, ValueType.FLOAT64})
INT_TYPES = frozenset(LETTERS) - FLOAT_TYPES - {ValueType.BOOL}


class TensorType(NamedTuple):
    """A row is stored as whole blocks of ``block_elements`` values in ``block_bytes`` bytes."""

    name: str
    block_elements: int
    block_bytes: int


F32, F16, BF16 = 0, 1, 30

# Every tensor type that a file may hold, by its number. Numbers that are missing were withdrawn.
TENSOR_TYPES: dict[int, TensorType] = {
    F32: TensorType("F32", 1, 4),
    F16: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    BF16: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One entry of the tensor directory.

    ``shape`` is in file order: the first number is the length of a row, so a matrix is
    (cols, rows). ``offset`` counts bytes from the start of the file, ``num_bytes`` is exact.
    """

    name: str
    ggml_type: int
    shape: tuple[int, ...]
    offset: int
    num_bytes: int

    @property
    def type_name(self) -> str:
        return TENSOR_TYPES[self.ggml_type].name

    @property
    def num_elements(self) -> int:
        kind = TENSOR_TYPES[self.ggml_type]
        return self.num_bytes // kind.block_bytes * kind.block_elements


def damaged(source: str, field: str, message: str) -> BadCheckpoint:
    """The one line that every refusal of a file is: ``<file>: <field>: <what was got, wanted>``."""
    return BadCheckpoint(one_line(source, field, message))


def one_line(source: str, field: str, message: str) -> str:
    return f"{printable(source, 400)}: {printable(field, 120)}: {printable(message, 400)}"


def printable(text: str, length_max: int) -> str:
    """``text`` on one line and of bounded length, whatever a hostile file put into it."""
    shown = text[: length_max + 1]
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in shown)
    return shown if len(shown) <= length_max else shown[: length_max - 3] + "..."
