# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from gguf_writer import GgufWriter, Typed
from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import ValueType
from octavo.models.registry import ARCHITECTURES, ModelCard, TensorTypeUse, describe, spec_for
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tiny_gguf import Q8_0, tiny_gemma3, tiny_llama


def parse(writer: GgufWriter) -> GgufFile:
    return GgufFile("tiny.gguf", memoryview(writer.build()))


def card(writer: GgufWriter) -> ModelCard:
    return describe(parse(writer))


def test_the_architecture_chooses_the_specification():
    assert spec_for(parse(tiny_llama()))[0].architecture == "llama"
    assert spec_for(parse(tiny_gemma3()))[0].architecture == "gemma3"


def test_an_unknown_architecture_is_refused_with_the_known_ones():
    writer = GgufWriter({"general.architecture": "mamba"})
    with pytest.raises(UnsupportedModel, match=r"general.architecture: got 'mamba', octavo runs: "):
        spec_for(parse(writer))
    assert list(ARCHITECTURES) == sorted(ARCHITECTURES)
    with pytest.raises(BadCheckpoint, match=r"general.architecture: got no such key"):
        spec_for(parse(GgufWriter()))


def test_a_part_of_a_model_is_refused():
    writer = tiny_llama()
    writer.metadata["split.count"] = Typed(ValueType.UINT16, 1)
    assert spec_for(parse(writer))
    writer.metadata["split.count"] = Typed(ValueType.UINT16, 3)
    with pytest.raises(UnsupportedModel, match=r"split.count: got one of 3 parts"):
        spec_for(parse(writer))


def test_the_card_of_a_model_that_octavo_runs():
    got = card(tiny_llama(matrix_type=Q8_0))
    assert got.problems == ()
    assert (got.architecture, got.name) == ("llama", "tiny llama")
    assert (got.context_length, got.num_layers, got.vocab_size) == (128, 2, 40)
    assert (got.num_heads, got.num_kv_heads, got.head_dim, got.hidden_dim) == (4, 2, 16, 64)
    assert got.kv_bytes_per_token == 2 * 4 * 2 * 16
    num_matrix = 40 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96)
    assert got.num_parameters == num_matrix + 5 * 64
    assert got.tensor_types == (
        TensorTypeUse("Q8_0", 15, num_matrix // 32 * 34),
        TensorTypeUse("F32", 5, 5 * 64 * 4),
    )
    assert not got.has_chat_template


def test_the_card_lists_why_a_model_cannot_run():
    writer = tiny_llama()
    writer.metadata["tokenizer.chat_template"] = "{{ messages }}"
    writer.add_tensor("extra.weight", (1,))
    del writer.metadata["tokenizer.ggml.model"]
    got = card(writer)
    assert got.has_chat_template
    assert got.num_layers == 2
    assert [problem.split(": ")[1] for problem in got.problems] == [
        "extra.weight",
        "tokenizer.ggml.model",
    ]
    unknown = card(GgufWriter({"general.architecture": "mamba", "general.name": 3}))
    assert (unknown.architecture, unknown.name, unknown.num_layers) == ("mamba", None, None)
    assert "octavo runs: gemma3, llama" in unknown.problems[0]


def test_the_card_is_for_reading():
    writer = tiny_llama()
    for idx in range(100):
        writer.add_tensor(f"extra.{idx}", (1,))
    assert len(card(writer).problems) == 20


def test_the_card_is_fit_for_a_terminal():
    writer = tiny_llama()
    writer.metadata["general.name"] = b"\x1b[31mred\xff\n" + b"x" * 1000
    name = card(writer).name
    assert name is not None
    assert name.startswith("\\x1b[31mred\\udcff\\nxxx")
    assert name.isprintable()
    assert len(name) == 200


@pytest.mark.model
def test_the_demo_models_can_run(smollm2_path: Path, gemma3_path: Path):
    with GgufFile.open(smollm2_path) as file:
        got = describe(file)
    assert (got.problems, got.num_parameters, got.kv_bytes_per_token) == ((), 134_515_008, 23_040)
    with GgufFile.open(gemma3_path) as file:
        got = describe(file)
    assert (got.problems, got.num_parameters, got.kv_bytes_per_token) == ((), 268_098_176, 18_432)
