# SPDX-License-Identifier: Apache-2.0
"""Writes small GGUF files for tests, well-formed or damaged in any way that a test asks for."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from octavo.formats.gguf_types import LETTERS, TENSOR_TYPES, ValueType


@dataclass
class Typed:
    """A metadata value with its stored type spelt out; ``element`` is for arrays."""

    kind: ValueType
    value: object
    element: ValueType | None = None


@dataclass
class Tensor:
    """``shape`` in file order, row length first. ``offset`` None: after the tensor before it."""

    name: str | bytes
    shape: tuple[int, ...]
    ggml_type: int
    data: bytes
    offset: int | None = None


@dataclass
class GgufWriter:
    """Fill ``metadata`` and ``tensors``, then ``build()``. The other fields override what the file
    says about itself, to plant damage. ``raw_keys`` are (name, encoded type and value) as they are.
    """

    metadata: dict[str, object] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    num_tensors: int | None = None
    num_keys: int | None = None
    raw_keys: list[tuple[bytes, bytes]] = field(default_factory=list)

    def add_tensor(
        self, name: str | bytes, shape: tuple[int, ...], ggml_type: int = 0, data: bytes = b""
    ) -> Tensor:
        """``data`` empty: zeros of the right length."""
        tensor = Tensor(name, shape, ggml_type, data or bytes(tensor_bytes(shape, ggml_type)))
        self.tensors.append(tensor)
        return tensor

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def build(self) -> bytes:
        return b"".join(section for _, section in self.sections())

    def sections(self) -> list[tuple[str, bytes]]:
        """The file in its parts, in order, each with a name."""
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_keys = len(self.metadata) + len(self.raw_keys)
        num_keys = num_keys if self.num_keys is None else self.num_keys
        parts = [
            ("magic", self.magic),
            ("version", struct.pack("<I", self.version)),
            ("tensor_count", struct.pack("<Q", num_tensors)),
            ("metadata_kv_count", struct.pack("<Q", num_keys)),
        ]
        for key, value in self.metadata.items():
            parts += [(f"{key} name", string(key)), (f"{key} value", encode(value))]
        parts += [(repr(name), string(name) + value) for name, value in self.raw_keys]
        offsets = self._offsets()
        for tensor, offset in zip(self.tensors, offsets, strict=True):
            dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
            place = struct.pack("<IQ", tensor.ggml_type, offset)
            parts += [(f"{tensor.name!r} name", string(tensor.name)), (f"{tensor.name!r}", dims)]
            parts.append((f"{tensor.name!r} place", place))
        header_bytes = sum(len(section) for _, section in parts)
        if self.tensors:
            parts.append(("padding", bytes(-header_bytes % self.alignment)))
        written = 0
        for tensor, offset in sorted(zip(self.tensors, offsets, strict=True), key=lambda p: p[1]):
            if written <= offset <= written + 2 * self.alignment:  # an absurd offset gets no gap
                gap = bytes(offset - written)
                parts.append((f"{tensor.name!r} data", gap + tensor.data))
                written = offset + len(tensor.data)
        return parts

    def _offsets(self) -> list[int]:
        offsets, end = [], 0
        for tensor in self.tensors:
            offset = end if tensor.offset is None else tensor.offset
            offsets.append(offset)
            end = max(end, offset + len(tensor.data)) if tensor.offset is None else end
            end = -(-end // self.alignment) * self.alignment
        return offsets


def tensor_bytes(shape: tuple[int, ...], ggml_type: int) -> int:
    kind = TENSOR_TYPES[ggml_type]
    num_bytes = shape[0] // kind.block_elements * kind.block_bytes
    for dim in shape[1:]:
        num_bytes *= dim
    return num_bytes


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def encode(value: object) -> bytes:
    """Type and value. Python's own types are stored as bool, uint32, float32, string, array."""
    typed = value if isinstance(value, Typed) else infer(value)
    return struct.pack("<I", typed.kind) + _body(typed)


def infer(value: object) -> Typed:
    if isinstance(value, bool):
        return Typed(ValueType.BOOL, value)
    if isinstance(value, int):
        return Typed(ValueType.UINT32, value)
    if isinstance(value, float):
        return Typed(ValueType.FLOAT32, value)
    if isinstance(value, str | bytes):
        return Typed(ValueType.STRING, value)
    if isinstance(value, list):
        element = infer(value[0]).kind if value else ValueType.UINT32
        return Typed(ValueType.ARRAY, value, element)
    raise TypeError(f"no GGUF type for {value!r}")


def _body(typed: Typed) -> bytes:
    if typed.kind is ValueType.STRING:
        assert isinstance(typed.value, str | bytes)
        return string(typed.value)
    if typed.kind is ValueType.ARRAY:
        assert isinstance(typed.value, list)
        assert typed.element is not None
        head = struct.pack("<IQ", typed.element, len(typed.value))
        items = [
            item if isinstance(item, Typed) else Typed(typed.element, item, _element(item))
            for item in typed.value
        ]
        return head + b"".join(map(_body, items))
    return struct.pack("<" + LETTERS[typed.kind], typed.value)


def _element(value: object) -> ValueType | None:
    return infer(value).element if isinstance(value, list) else None
