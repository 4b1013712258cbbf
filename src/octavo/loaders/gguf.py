# SPDX-License-Identifier: Apache-2.0
"""From a GGUF file to a decoder's weights. Fails closed: what a file holds must be exactly what the
architecture wants, down to each shape, before the first byte is handed over.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import BF16, F16, F32, TENSOR_TYPES, TensorInfo, one_line
from octavo.progress import Progress, silent
from octavo.types.decoder_spec import Slot, TensorSpec
from octavo.types.errors import BadCheckpoint, ModelError, UnsupportedModel

LABEL = "Loading the weights"

# Tensor types that the native core computes with. Written out here too, so that a file can be
# judged where the extension cannot be loaded; a test compares the two.
MATRIX_TYPE_NAMES = frozenset("F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K".split())
MATRIX_TYPES = frozenset(
    number for number, kind in TENSOR_TYPES.items() if kind.name in MATRIX_TYPE_NAMES
)
VECTOR_TYPES = frozenset({F32, F16, BF16})

# Tensors that no slot wants and that are no reason to refuse a file.
IGNORED = frozenset({"rope_freqs.weight"})  # part of the architecture's rope, not of its weights


class WeightSink(Protocol):
    """Takes the weights of one model. Data is only valid during the call."""

    def load_matrix(
        self,
        slot: Slot,
        layer_idx: int | None,
        ggml_type: int,
        shape: tuple[int, int],
        data: memoryview,
    ) -> None:
        """``shape`` is (rows, cols); ``data`` holds whole rows as the file has them."""

    def load_vector(self, slot: Slot, layer_idx: int | None, values: memoryview) -> None:
        """``values`` are the bytes of little-endian float32 numbers."""

    def finish_loading(self) -> None:
        """Every tensor has been handed over."""


def check_gguf(file: GgufFile, tensors: Sequence[TensorSpec]) -> None:
    """Raise for the first tensor that is missing, unexpected, mis-shaped or of a wrong type.

    Call it before anything is sized by the specification: a file that passes holds at least the
    bytes that its hyperparameters promise.
    """
    for problem in find_problems(file, tensors):
        raise problem


def find_problems(file: GgufFile, tensors: Sequence[TensorSpec]) -> Iterator[ModelError]:
    """Everything that ``check_gguf`` would refuse, as the errors that it would raise."""
    for wanted in tensors:
        info = file.tensors.get(wanted.name)
        if info is None:
            message = f"got no such tensor, wanted one of shape {wanted.shape}"
            yield BadCheckpoint(one_line(file.source, wanted.name, message))
        else:
            yield from _tensor_problems(file.source, info, wanted)
    names = {wanted.name for wanted in tensors}
    for name in file.tensors:
        if name not in names and name not in IGNORED:
            message = "got a tensor that the architecture has no place for, wanted none"
            yield BadCheckpoint(one_line(file.source, name, message))


def load_gguf(
    file: GgufFile,
    tensors: Sequence[TensorSpec],
    sink: WeightSink,
    progress: Progress = silent,
) -> None:
    """Check the file against ``tensors``, hand each to ``sink`` in that order, then finish.

    Matrices go as views of the mapped file, without a copy; vectors become float32. What
    ``progress`` raises ends the loading.
    """
    check_gguf(file, tensors)
    file.prefetch()
    num_bytes = sum(file.tensor_data(wanted.name).nbytes for wanted in tensors)
    num_done = 0
    for wanted in tensors:
        progress(LABEL, num_done, num_bytes)
        info = file.tensors[wanted.name]
        data = file.tensor_data(wanted.name)
        if len(wanted.shape) == 2:
            rows, cols = wanted.shape
            sink.load_matrix(wanted.slot, wanted.layer_idx, info.ggml_type, (rows, cols), data)
        else:
            values = as_float32(info.ggml_type, data)
            sink.load_vector(wanted.slot, wanted.layer_idx, values)
        num_done += data.nbytes
    sink.finish_loading()
    progress(LABEL, num_done, num_bytes)


def as_float32(ggml_type: int, data: memoryview) -> memoryview:
    """The bytes of F32, F16 or BF16 numbers as those of little-endian float32, all exact."""
    if ggml_type == F32:
        return data
    if ggml_type == F16:
        values = array("f", struct.unpack(f"<{len(data) // 2}e", data))
        return _little_endian(values)
    assert ggml_type == BF16, f"no vector type: {ggml_type}"
    halves = array("H")
    halves.frombytes(data)
    return _little_endian(array("I", [half << 16 for half in halves]))


def _little_endian(values: array[float] | array[int]) -> memoryview:
    if sys.byteorder == "big":
        values.byteswap()
    return memoryview(values).cast("B")


def _tensor_problems(source: str, info: TensorInfo, wanted: TensorSpec) -> Iterable[ModelError]:
    shape = tuple(reversed(info.shape))  # the file has the length of a row first
    if shape != wanted.shape:
        message = f"got shape {shape}, wanted {wanted.shape}"
        yield BadCheckpoint(one_line(source, wanted.name, message))
    is_vector = len(wanted.shape) == 1
    if info.ggml_type not in (VECTOR_TYPES if is_vector else MATRIX_TYPES):
        kinds = "F32, F16 or BF16" if is_vector else "one of " + " ".join(sorted(MATRIX_TYPE_NAMES))
        message = f"got {info.type_name}, wanted {kinds}"
        yield UnsupportedModel(one_line(source, wanted.name, message))
