# SPDX-License-Identifier: Apache-2.0
"""Reference ids for each pre-tokenizer, over vocabularies cut down to what the texts can use."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from octavo.tokenizer.gguf_vocab import PREFIX, tokenizer_from_gguf

NAMES = (
    "command-r deepseek-coder falcon gpt-2 llama-bpe llama-spm mpt phi-3 qwen2 qwen35 refact "
    "starcoder"
).split()


@cache
def load(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


def vocabulary(data_dir: Path, name: str) -> dict[str, Any]:
    return load(data_dir / "tokenizers" / "vocab_vectors.json.gz")[name]


def failures(metadata: dict[str, Any], vectors: list[tuple[str, list[int]]]) -> list[str]:
    tokenizer = tokenizer_from_gguf(metadata)
    return [
        text for text, ids in vectors if tokenizer.encode(text, add_special_tokens=False) != ids
    ]


def test_every_vocabulary_of_the_file_is_tested(data_dir: Path):
    assert sorted(load(data_dir / "tokenizers" / "vocab_vectors.json.gz")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_the_reference(data_dir: Path, name: str):
    data = vocabulary(data_dir, name)
    assert len(data["vectors"]) >= 44
    assert not failures(data["metadata"], data["vectors"])


@pytest.mark.parametrize("name", NAMES)
def test_references_decode_to_their_text(data_dir: Path, name: str):
    data = vocabulary(data_dir, name)
    tokenizer = tokenizer_from_gguf(data["metadata"])
    for text, ids in data["vectors"]:
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("starcoder", "gpt-2"),
        ("gpt-2", "starcoder"),
        ("llama-bpe", "qwen2"),
        ("qwen2", "gpt-2"),
        ("qwen35", "gpt-2"),
        ("falcon", "gpt-2"),
        ("deepseek-coder", "gpt-2"),
    ],
)
def test_a_neighbouring_rule_would_be_noticed(data_dir: Path, name: str, wrong: str):
    """The planted error: vectors that pass under a wrong rule would prove nothing."""
    data = vocabulary(data_dir, name)
    assert failures(data["metadata"] | {PREFIX + "pre": wrong}, data["vectors"])
