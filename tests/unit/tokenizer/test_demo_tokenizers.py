# SPDX-License-Identifier: Apache-2.0
"""The two demo models' own vocabularies: reference prompts and byte-exact round trips."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from octavo.formats.gguf import GgufFile
from octavo.tokenizer.base import VocabTokenizer
from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf

pytestmark = pytest.mark.model

# Bytes that SmolLM2's vocabulary lacks; in valid UTF-8, U+FFFD stands for their characters.
SMOLLM2_MISSING = dict.fromkeys(map(ord, "\x04\x06\x13\x14\x16\x1d"), "\ufffd")


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> VocabTokenizer:
    return tokenizer_from_gguf(GgufFile.open(smollm2_path).metadata)


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> VocabTokenizer:
    return tokenizer_from_gguf(GgufFile.open(gemma3_path).metadata)


def round_trip(tokenizer: VocabTokenizer, text: str) -> str:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.decode(ids, skip_special_tokens=False)


def random_texts(num_texts: int) -> list[str]:
    """Any code points but surrogates and private planes, mixed with spaces, newlines and ASCII."""
    rng = random.Random(20)
    ranges = [(0x20, 0x7E), (0xA0, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x3FFFF)]
    texts = []
    for _ in range(num_texts):
        chars = [chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 40))]
        texts.append("".join(rng.choice((char, char, " ", "  ", "\n", "\t")) for char in chars))
    return texts


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_reference_prompts(request: pytest.FixtureRequest, data_dir: Path, name: str):
    tokenizer = request.getfixturevalue(name)
    items = json.loads((data_dir / "golden" / f"{name}.json").read_text())["items"]
    assert len(items) == 6
    for item in items:
        ids = tokenizer.encode(item["prompt"])
        if item["kind"] == "chat" and tokenizer.chat_template is not None:
            text = tokenizer.render_chat([{"role": "user", "content": item["prompt"]}])
            ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == item["prompt_ids"]
        assert tokenizer.decode(item["ids"], skip_special_tokens=False) == item["text"]


def test_naughty_strings_and_random_text_survive_gemma3(gemma3: VocabTokenizer, data_dir: Path):
    naughty = json.loads((data_dir / "tokenizers" / "blns.json").read_text())
    for text in [*naughty, *random_texts(300)]:
        # the vocabulary writes a space as U+2581, so that character itself comes back as a space
        assert round_trip(gemma3, text) == text.replace("\u2581", " ")


def test_naughty_strings_and_random_text_survive_smollm2(smollm2: VocabTokenizer, data_dir: Path):
    naughty = json.loads((data_dir / "tokenizers" / "blns.json").read_text())
    for text in [*naughty, *random_texts(300)]:
        assert round_trip(smollm2, text) == text.translate(SMOLLM2_MISSING)


def test_smollm2_facts(smollm2: VocabTokenizer):
    assert smollm2.vocab_size == 49152
    assert (smollm2.bos_token_id, smollm2.eos_token_id) == (1, 2)
    assert smollm2.stop_token_ids == {0, 2}  # <|endoftext|>, <|im_end|>
    assert smollm2.encode("") == []  # its file says: no BOS


def test_gemma3_facts(gemma3: VocabTokenizer):
    assert gemma3.vocab_size == 262144
    assert (gemma3.bos_token_id, gemma3.eos_token_id) == (2, 1)
    assert gemma3.stop_token_ids == {1, 106}  # <eos>, <end_of_turn>; not the HTML tag </s>
    assert gemma3.encode("") == [2]
    assert gemma3.encode("\n\n", add_special_tokens=False) == [108]
    assert gemma3.encode("a  b")[1:] == [236746, 138, 236763]
    assert gemma3.token_bytes(238) == b"\x00"  # <0x00>
