# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from array import array

import pytest

from octavo.tokenizer.gguf_vocab import STOP_TOKEN_TEXTS, tokenizer_from_gguf
from octavo.types.errors import BadCheckpoint, UnsupportedModel
from tokenizer_vocabs import PREFIX, byte_level_metadata, sentence_piece_metadata

BOTH = [byte_level_metadata, sentence_piece_metadata]
NAN = float("nan")


@pytest.mark.parametrize("make", BOTH)
def test_any_kind_of_sequence_will_do(make):
    metadata = make()
    plain = tokenizer_from_gguf(metadata).encode("ab \u00e9")
    as_tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in metadata.items()}
    assert tokenizer_from_gguf(as_tuples).encode("ab \u00e9") == plain
    metadata[PREFIX + "token_type"] = array("i", metadata[PREFIX + "token_type"])
    if PREFIX + "scores" in metadata:
        metadata[PREFIX + "scores"] = array("f", metadata[PREFIX + "scores"])
    assert tokenizer_from_gguf(metadata).encode("ab \u00e9") == plain


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (byte_level_metadata, "model"),
        (byte_level_metadata, "tokens"),
        (byte_level_metadata, "token_type"),
        (byte_level_metadata, "merges"),
        (sentence_piece_metadata, "scores"),
    ],
)
def test_a_missing_key_is_named(make, key: str):
    metadata = make()
    del metadata[PREFIX + key]
    with pytest.raises(BadCheckpoint, match=rf"tokenizer\.ggml\.{key}: got no such key"):
        tokenizer_from_gguf(metadata)


HOSTILE = [
    ("model", 7),
    ("tokens", "abc"),
    ("tokens", []),
    ("tokens", ["a"] * 258 + [None]),
    ("tokens", ["a"] * 258 + [b"a"]),
    ("tokens", ["a"] * 258 + ["a\udc80"]),
    ("token_type", [1]),
    ("token_type", [1] * 258 + [True]),
    ("token_type", [1] * 258 + [7]),
    ("token_type", [1] * 258 + [-1]),
    ("token_type", [1.0] * 259),
    ("merges", ["ab"]),
    ("merges", [" b"]),
    ("merges", ["a zz"]),
    ("merges", [1]),
    ("merges", ["a \udc80"]),
    ("merges", ["a b\nc"]),
    ("merges", 3),
    ("bos_token_id", 259),
    ("bos_token_id", -1),
    ("eos_token_id", "1"),
    ("eos_token_id", True),
    ("eot_token_id", 2**32 - 1),
    ("add_bos_token", 1),
    ("add_eos_token", "yes"),
]
HOSTILE_SCORES = [
    ("scores", [0.0]),
    ("scores", [0.0] * 265 + [NAN]),
    ("scores", [0.0] * 265 + [float("inf")]),
    ("scores", [0] * 266),
    ("unknown_token_id", 266),
    ("add_space_prefix", None.__class__),
    ("tokens", ["<0xZZ>"] * 266),
]


@pytest.mark.parametrize(
    ("make", "key", "value"),
    [(byte_level_metadata, *case) for case in HOSTILE]
    + [(sentence_piece_metadata, *case) for case in HOSTILE_SCORES],
)
def test_a_hostile_value_is_refused_in_one_line_that_names_the_key(make, key: str, value: object):
    with pytest.raises(BadCheckpoint, match=rf"checkpoint: tokenizer\.ggml\.{key}") as caught:
        tokenizer_from_gguf(make() | {PREFIX + key: value})
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 700


def test_the_message_names_the_file_when_the_metadata_does():
    class Named(dict):
        source = "model.gguf"

    with pytest.raises(BadCheckpoint, match=r"^model\.gguf: tokenizer\.ggml\.model: got no such"):
        tokenizer_from_gguf(Named())


def test_a_chat_template_must_be_text():
    with pytest.raises(BadCheckpoint, match=r"tokenizer\.chat_template: got list"):
        tokenizer_from_gguf(byte_level_metadata() | {"tokenizer.chat_template": ["x"]})


def test_bos_cannot_be_wanted_and_missing():
    metadata = byte_level_metadata() | {PREFIX + "add_bos_token": True}
    assert tokenizer_from_gguf(metadata).encode("")[0] == 0
    del metadata[PREFIX + "bos_token_id"]
    with pytest.raises(BadCheckpoint, match=r"bos_token_id: got no such key, but add_bos_token"):
        tokenizer_from_gguf(metadata)


@pytest.mark.parametrize("kind", ["bert", "t5", "rwkv", "no_vocab"])
def test_other_kinds_are_unsupported_by_name(kind: str):
    with pytest.raises(UnsupportedModel, match=f"'{kind}', can read 'gpt2' and 'llama'"):
        tokenizer_from_gguf(byte_level_metadata() | {PREFIX + "model": kind})


@pytest.mark.parametrize("name", ["default", "gpt2", "a-new-one", None])
def test_an_unknown_pre_tokenizer_is_unsupported_and_the_known_are_listed(name: str | None):
    metadata = byte_level_metadata() | {PREFIX + "pre": name}
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.ggml\.pre: got .*gpt-2.*smollm"):
        tokenizer_from_gguf(metadata)


def test_stop_tokens_are_those_named_and_those_known_by_their_text():
    metadata = byte_level_metadata() | {PREFIX + "eot_token_id": 5}
    assert tokenizer_from_gguf(metadata).stop_token_ids == {1, 5}
    assert "<|im_end|>" in STOP_TOKEN_TEXTS
    metadata[PREFIX + "eos_token_id"] = 9
    assert tokenizer_from_gguf(metadata).stop_token_ids == {1, 5, 9}
    metadata[PREFIX + "token_type"] = [1] * 259  # the same text as an ordinary token stops nothing
    assert tokenizer_from_gguf(metadata).stop_token_ids == {5, 9}


def test_of_two_tokens_with_one_text_the_first_is_encoded_and_both_decode():
    metadata = byte_level_metadata()
    metadata[PREFIX + "tokens"] += ["ab"]
    metadata[PREFIX + "token_type"] += [1]
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("ab") == [258]
    assert tokenizer.decode([258, 259]) == "abab"
