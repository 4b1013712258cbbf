# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

import pytest

from gguf_writer import GgufWriter
from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import TENSOR_TYPES
from octavo.loaders.gguf import LABEL, MATRIX_TYPES, as_float32, check_gguf, load_gguf
from octavo.models import registry
from octavo.ops import cpu
from octavo.types.decoder_spec import Slot
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tiny_gguf import HEAD_DIM, HIDDEN, Q8_0, VOCAB, tiny_gemma3, tiny_llama
from weight_sink import RecordingSink


def load(writer: GgufWriter) -> RecordingSink:
    file = GgufFile("tiny.gguf", memoryview(writer.build()))
    sink = RecordingSink()
    load_gguf(file, registry.spec_for(file)[1], sink)
    return sink


def refuse(writer: GgufWriter, match: str) -> None:
    with pytest.raises(BadCheckpoint, match=r"^tiny.gguf: " + match) as caught:
        load(writer)
    assert "\n" not in str(caught.value)


def test_every_tensor_reaches_its_slot_unchanged():
    writer = tiny_gemma3(matrix_type=Q8_0)
    sink = load(writer)
    assert sink.finished
    assert len(sink.matrices) + len(sink.vectors) == len(writer.tensors)
    embedding = writer.tensor("token_embd.weight").data
    assert sink.matrices[Slot.EMBEDDING, None] == (Q8_0, (VOCAB, HIDDEN), embedding)
    assert sink.matrices[Slot.K, 1][1] == (2 * HEAD_DIM, HIDDEN)
    assert sink.vectors[Slot.Q_NORM, 1] == writer.tensor("blk.1.attn_q_norm.weight").data


def test_progress_goes_up_to_all_bytes_and_can_end_the_loading():
    file = GgufFile("tiny.gguf", memoryview(tiny_llama().build()))
    tensors = registry.spec_for(file)[1]
    reports: list[tuple[str, int, int]] = []
    load_gguf(file, tensors, RecordingSink(), lambda *report: reports.append(report))
    done = [report[1] for report in reports]
    assert done == sorted(done)
    assert len(set(done)) == len(tensors) + 1
    assert reports[-1] == (LABEL, reports[0][2], reports[0][2])

    def stop(label: str, done: int, total: int) -> None:
        raise InterruptedError

    sink = RecordingSink()
    with pytest.raises(InterruptedError):
        load_gguf(file, tensors, sink, stop)
    assert not sink.matrices


def test_the_loader_takes_the_types_that_the_native_core_computes_with():
    assert {number for number in TENSOR_TYPES if cpu.is_supported_type(number)} == MATRIX_TYPES


def test_half_precision_vectors_become_float32():
    values = [0.0, 1.0, -2.5, 65504.0, 2.0**-24]
    as_half = memoryview(struct.pack("<5e", *values))
    assert struct.unpack("<5f", as_float32(1, as_half)) == tuple(values)
    # bfloat16 is the upper half of a float32; these values have nothing in the lower one
    exact = [0.0, 1.0, -2.5, 2.0**100, -(2.0**-120)]
    upper = b"".join(struct.pack("<f", value)[2:] for value in exact)
    assert struct.unpack("<5f", as_float32(30, memoryview(upper))) == tuple(exact)
    full = memoryview(struct.pack("<5f", *exact))
    assert as_float32(0, full) is full


def test_a_missing_tensor_is_refused():
    writer = tiny_llama()
    writer.tensors.remove(writer.tensor("blk.1.ffn_up.weight"))
    refuse(writer, r"blk.1.ffn_up.weight: got no such tensor, wanted one of shape \(96, 64\)")


def test_an_unexpected_tensor_is_refused():
    writer = tiny_llama()
    writer.add_tensor("blk.2.ffn_up.weight", (64, 96))
    refuse(writer, "blk.2.ffn_up.weight: got a tensor that the architecture has no place for")


def test_a_misshaped_tensor_is_refused():
    writer = tiny_llama()
    writer.tensor("blk.0.attn_q.weight").shape = (32, 128)
    refuse(writer, r"blk.0.attn_q.weight: got shape \(128, 32\), wanted \(64, 64\)")
    writer.tensor("blk.0.attn_q.weight").shape = (64, 64, 1)
    refuse(writer, r"blk.0.attn_q.weight: got shape \(1, 64, 64\), wanted \(64, 64\)")


def test_types_that_octavo_cannot_compute_are_named():
    writer = tiny_llama()
    tensor = writer.tensor("blk.0.attn_q.weight")
    tensor.ggml_type, tensor.data = 20, bytes(64 * 64 // 32 * 18)
    with pytest.raises(UnsupportedModel, match=r"got IQ4_NL, wanted one of BF16 F16 F32 Q4_0 "):
        load(writer)
    writer = tiny_llama()
    tensor = writer.tensor("output_norm.weight")
    tensor.ggml_type, tensor.data = Q8_0, bytes(68)
    with pytest.raises(UnsupportedModel, match=r"output_norm.weight: got Q8_0, wanted F32, F16"):
        load(writer)


def test_nothing_is_handed_over_when_the_last_tensor_is_wrong():
    writer = tiny_llama()
    writer.tensors[-1].shape = (64, 96)
    file = GgufFile("tiny.gguf", memoryview(writer.build()))
    tensors = registry.spec_for(file)[1]
    sink = RecordingSink()
    with pytest.raises(BadCheckpoint):
        load_gguf(file, tensors, sink)
    assert not sink.matrices
    assert not sink.vectors
    with pytest.raises(BadCheckpoint):
        check_gguf(file, tensors)
