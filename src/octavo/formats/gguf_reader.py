# SPDX-License-Identifier: Apache-2.0
"""A cursor over a GGUF header that never reads, and never believes, past the end of the file."""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

from octavo.formats.gguf_types import (
    ARRAY_DEPTH_MAX,
    NESTED_ARRAYS_MAX,
    SIZES,
    STRING_BYTES_MAX,
    STRINGS_MAX,
    ValueType,
    damaged,
)

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


class Entry(NamedTuple):
    """Where a metadata value lies in the file; it is decoded when somebody asks for it.

    ``start`` is the first byte of the value, of an array's first element, or of a string's text.
    ``length`` is 1 for a fixed-size scalar, bytes for a string, elements for an array.
    ``element`` is set for arrays only. ``text_starts`` is set for arrays of strings: where the text
    of each one starts, and last where the text of one more would, so text i ends 8 bytes (the next
    length) before text i + 1 starts.
    """

    kind: ValueType
    start: int
    length: int
    element: ValueType | None = None
    text_starts: array[int] | None = None


class HeaderReader:
    """Reads forward through ``data``. Invariant: ``0 <= position <= len(data)``.

    Every count is compared with the bytes that remain before anything is built from it, so no
    number in the file can cost more memory or time than the file's own size allows.
    """

    def __init__(
        self, source: str, data: memoryview, position: int = 0, *, strings_max: int = STRINGS_MAX
    ) -> None:
        self.source = source
        self.position = position
        self._data = data
        self._size = len(data)
        self._strings_left = strings_max
        self._arrays_left = NESTED_ARRAYS_MAX

    def skip(self, num_bytes: int, field: str) -> int:
        """Step over ``num_bytes``; returns where they start."""
        remaining = self._size - self.position
        if num_bytes > remaining:
            raise damaged(
                self.source, field, f"got {remaining} bytes to the end of file, wanted {num_bytes}"
            )
        start = self.position
        self.position += num_bytes
        return start

    def u32(self, field: str) -> int:
        start = self.skip(4, field)
        return int(U32.unpack_from(self._data, start)[0])

    def u64(self, field: str) -> int:
        start = self.skip(8, field)
        return int(U64.unpack_from(self._data, start)[0])

    def count(self, field: str, limit: int, item_bytes_min: int) -> int:
        """A 64-bit count of items that follow, each at least ``item_bytes_min`` bytes long."""
        count = self.u64(field)
        if count > limit:
            raise damaged(self.source, field, f"got {count}, octavo reads at most {limit}")
        remaining = self._size - self.position
        if count * item_bytes_min > remaining:
            raise damaged(
                self.source,
                field,
                f"got {count}, but the {remaining} bytes to the end of file cannot hold as many",
            )
        return count

    def text(self, field: str, bytes_max: int) -> bytes:
        """A string: its length in 64 bits, then its bytes."""
        entry = self._string(field, bytes_max)
        return bytes(self._data[entry.start : entry.start + entry.length])

    def value(self, field: str) -> Entry:
        """A metadata value: its type, then itself."""
        kind = self._value_type(field)
        if kind is ValueType.STRING:
            return self._string(field, STRING_BYTES_MAX)
        if kind is ValueType.ARRAY:
            return self.array(field, depth=1)
        start = self.skip(SIZES[kind], field)
        if kind is ValueType.BOOL and self._data[start] > 1:
            raise damaged(self.source, field, f"got {self._data[start]} for a bool, wanted 0 or 1")
        return Entry(kind, start, 1)

    def array(self, field: str, depth: int) -> Entry:
        """An array, from its element type on; ``depth`` counts the arrays around it, itself too."""
        if depth > ARRAY_DEPTH_MAX:
            raise damaged(
                self.source, field, f"got arrays nested {depth} deep, at most {ARRAY_DEPTH_MAX}"
            )
        element = self._value_type(field)
        if element is ValueType.STRING:
            return self._strings(field)
        if element is ValueType.ARRAY:
            return self._nested(field, depth)
        size = SIZES[element]
        count = self.count(field, self._size, size)
        return Entry(ValueType.ARRAY, self.skip(count * size, field), count, element)

    def _value_type(self, field: str) -> ValueType:
        number = self.u32(field)
        try:
            return ValueType(number)
        except ValueError:
            raise damaged(
                self.source, field, f"got value type {number}, the format has 0 to 12"
            ) from None

    def _string(self, field: str, bytes_max: int) -> Entry:
        length = self.u64(field)
        if length > bytes_max:
            raise damaged(
                self.source, field, f"got a string of {length} bytes, at most {bytes_max}"
            )
        return Entry(ValueType.STRING, self.skip(length, field), length)

    def _strings(self, field: str) -> Entry:
        """Walk an array of strings in one pass: 0.1 microseconds each, 8 bytes kept of each."""
        count = self.count(field, self._strings_left, 8)
        self._strings_left -= count
        data, size, position = self._data, self._size, self.position
        unpack = U64.unpack_from
        text_starts = array("Q", (position + 8,))
        for index in range(count):
            if size - position < 8:
                raise damaged(self.source, f"{field}[{index}]", "got the end of file, wanted text")
            length = unpack(data, position)[0]
            position += 8 + length
            if length > STRING_BYTES_MAX or position > size:
                raise damaged(
                    self.source,
                    f"{field}[{index}]",
                    f"got a string of {length} bytes, wanted at most {STRING_BYTES_MAX}"
                    f" and not past the end of file",
                )
            text_starts.append(position + 8)
        start, self.position = self.position, position
        return Entry(ValueType.ARRAY, start, count, ValueType.STRING, text_starts)

    def _nested(self, field: str, depth: int) -> Entry:
        count = self.count(field, self._arrays_left, 12)  # an inner array: type and count, at least
        self._arrays_left -= count
        start = self.position
        for _ in range(count):
            self.array(field, depth + 1)
        return Entry(ValueType.ARRAY, start, count, ValueType.ARRAY)
