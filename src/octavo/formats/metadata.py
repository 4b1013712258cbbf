# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's key-value metadata, decoded on demand, with getters that refuse bad values.

A getter names the key, its type and its range at the place of use; anything else in the file (a
missing key, another type, a number out of range) is a ``BadCheckpoint`` that says so in one line.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, overload

from octavo.formats.gguf_reader import Entry, HeaderReader
from octavo.formats.gguf_types import (
    FLOAT_TYPES,
    INT_TYPES,
    LETTERS,
    ValueType,
    damaged,
)
from octavo.types.errors import BadCheckpoint

Value: TypeAlias = (
    "bool | int | float | str | Sequence[str] | Sequence[int] | Sequence[float] | tuple[Value, ...]"
)

# What decoding may cost beside the file's own size: see ``Metadata.get_strings``.
DECODED_BYTES_SPARE = 32 * 2**20
STR_BYTES = 88  # a short non-ASCII str object and its place in a list


class StringArray(Sequence[str]):
    """The strings of an array, decoded one at a time from the mapped file; holds 8 bytes of each.

    Text is UTF-8 by the format's rules. Where a file breaks them, each stray byte becomes a lone
    surrogate (the ``surrogateescape`` rule), so no byte is lost and no token disappears.
    """

    __slots__ = ("_data", "_text_starts")

    def __init__(self, data: memoryview, text_starts: array[int]) -> None:
        self._data = data
        self._text_starts = text_starts

    def __len__(self) -> int:
        return len(self._text_starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        start, end = self._bounds(range(len(self))[index])
        return str(self._data[start:end], "utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        starts = iter(self._text_starts)
        start = next(starts)
        for next_start in starts:
            yield str(self._data[start : next_start - 8], "utf-8", "surrogateescape")
            start = next_start

    def raw(self, index: int) -> bytes:
        """The bytes of one string, exactly as the file has them."""
        start, end = self._bounds(range(len(self))[index])
        return bytes(self._data[start:end])

    @property
    def num_text_bytes(self) -> int:
        return self._text_starts[-1] - self._text_starts[0] - 8 * len(self)

    def _bounds(self, index: int) -> tuple[int, int]:
        return self._text_starts[index], self._text_starts[index + 1] - 8


class Metadata(Mapping[str, Value]):
    """Keys and where their values lie; ``metadata[key]`` decodes anew each time: keep the result.

    Integers, floats and booleans come as such, strings as ``str``, arrays of strings as
    ``StringArray``, arrays of numbers as ``array.array`` (booleans as 0 and 1), nested arrays as
    tuples. ``source`` is the file's name, for messages.
    """

    def __init__(self, source: str, data: memoryview, entries: Mapping[str, Entry]) -> None:
        self.source = source
        self._data = data
        self._entries = entries

    def __getitem__(self, key: str) -> Value:
        return self._decode(self._entries[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries  # Mapping's own would decode the value

    def get_int(self, key: str, low: int, high: int, *, default: int | None = None) -> int:
        """An integer of any width in [low, high]. Without a default the key must be there."""
        if default is not None and key not in self._entries:
            return default
        wanted = f"an integer in [{low}, {high}]"
        entry = self._entry(key, wanted)
        value = self._decode(entry) if entry.kind in INT_TYPES else None
        if not isinstance(value, int) or not low <= value <= high:
            raise self._mismatch(key, wanted)
        return value

    def get_float(
        self, key: str, low: float, high: float, *, default: float | None = None
    ) -> float:
        """A finite float of either width in [low, high]."""
        if default is not None and key not in self._entries:
            return default
        wanted = f"a float in [{low:g}, {high:g}]"
        entry = self._entry(key, wanted)
        value = self._decode(entry) if entry.kind in FLOAT_TYPES else None
        if not isinstance(value, float) or not low <= value <= high:  # false for NaN too
            raise self._mismatch(key, wanted)
        return value

    def get_str(self, key: str, *, default: str | None = None) -> str:
        """A string; bytes that are not UTF-8 come as lone surrogates, as in ``StringArray``."""
        if default is not None and key not in self._entries:
            return default
        entry = self._entry(key, "a string")
        if entry.kind is not ValueType.STRING:
            raise self._mismatch(key, "a string")
        return str(self._data[entry.start : entry.start + entry.length], "utf-8", "surrogateescape")

    def get_string_array(self, key: str) -> StringArray:
        """An array of strings, not decoded yet: O(1)."""
        wanted = "an array of strings"
        starts = self._entry(key, wanted).text_starts
        if starts is None:
            raise self._mismatch(key, wanted)
        return StringArray(self._data, starts)

    def get_strings(self, key: str) -> list[str]:
        """An array of strings, all decoded: 0.3 microseconds and some 60 to 90 bytes each.

        An empty string takes 8 bytes of a file and ten times that in a list, so an array that would
        need more memory than the whole file and 32 MB beside is refused; real vocabularies need a
        tenth of that.
        """
        strings = self.get_string_array(key)
        needed = STR_BYTES * len(strings) + 4 * strings.num_text_bytes
        allowed = len(self._data) + DECODED_BYTES_SPARE
        if needed > allowed:
            raise damaged(
                self.source,
                key,
                f"got {len(strings)} strings that take up to {needed} bytes, at most {allowed}",
            )
        return list(strings)

    def get_ints(self, key: str, low: int, high: int, *, count: int | None = None) -> array[int]:
        """An array of integers in [low, high], exactly ``count`` of them unless that is None."""
        values = self._numbers(key, INT_TYPES, count, f"an array of integers in [{low}, {high}]")
        if len(values) and not low <= min(values) <= max(values) <= high:
            worst = next(value for value in values if not low <= value <= high)
            raise damaged(self.source, key, f"got {worst}, wanted integers in [{low}, {high}]")
        return values

    def get_bools(self, key: str, *, count: int) -> tuple[bool, ...]:
        """An array of exactly ``count`` booleans."""
        kinds = frozenset({ValueType.BOOL})
        return tuple(map(bool, self._numbers(key, kinds, count, "an array of bools")))

    def is_array(self, key: str) -> bool:
        """Whether the key is there and holds an array."""
        return key in self._entries and self._entries[key].kind is ValueType.ARRAY

    def _numbers(
        self, key: str, kinds: frozenset[ValueType], count: int | None, wanted: str
    ) -> array[Any]:
        entry = self._entry(key, wanted)
        if entry.element not in kinds:
            raise self._mismatch(key, wanted)
        if count is not None and entry.length != count:
            raise damaged(self.source, key, f"got {entry.length} elements, wanted {count}")
        values = self._decode(entry)
        assert isinstance(values, array)
        return values

    def _entry(self, key: str, wanted: str) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            raise damaged(self.source, key, f"got no such key, wanted {wanted}")
        return entry

    def _mismatch(self, key: str, wanted: str) -> BadCheckpoint:
        return damaged(self.source, key, f"got {self._show(self._entries[key])}, wanted {wanted}")

    def _show(self, entry: Entry) -> str:
        if entry.kind is ValueType.ARRAY:
            assert entry.element is not None
            return f"an array of {entry.length} {entry.element.name.lower()}"
        if entry.kind is ValueType.STRING:
            head = bytes(self._data[entry.start : entry.start + min(entry.length, 60)])
            return f"the string {head.decode('utf-8', 'replace')!r:.60}"
        return f"the {entry.kind.name.lower()} {self._decode(entry)!r}"

    def _decode(self, entry: Entry) -> Value:
        if entry.kind is ValueType.STRING:
            end = entry.start + entry.length
            return str(self._data[entry.start : end], "utf-8", "surrogateescape")
        if entry.kind is ValueType.ARRAY:
            return self._decode_array(entry)
        value: int | float = struct.unpack_from("<" + LETTERS[entry.kind], self._data, entry.start)[
            0
        ]
        return bool(value) if entry.kind is ValueType.BOOL else value

    def _decode_array(self, entry: Entry) -> Value:
        if entry.text_starts is not None:
            return StringArray(self._data, entry.text_starts)
        assert entry.element is not None
        if entry.element is ValueType.ARRAY:
            reader = HeaderReader(self.source, self._data, entry.start)
            inner = [reader.array("nested array", depth=2) for _ in range(entry.length)]
            return tuple(self._decode_array(each) for each in inner)
        values: array[Any] = array(LETTERS[entry.element])
        end = entry.start + entry.length * values.itemsize
        values.frombytes(self._data[entry.start : end])
        return values
