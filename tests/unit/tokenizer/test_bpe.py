# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.tokenizer.bpe import BYTE_TO_CHAR, ByteLevelCodec
from octavo.tokenizer.pre_tokenizers import PRE_TOKENIZERS
from octavo.types.errors import InvalidRequest

GPT2 = PRE_TOKENIZERS["gpt-2"]


def make_codec(*merges: tuple[str, str], without: bytes = b"") -> tuple[ByteLevelCodec, list[str]]:
    texts = [char for byte, char in enumerate(BYTE_TO_CHAR) if byte not in without]
    texts += [left + right for left, right in merges]
    return ByteLevelCodec({text: i for i, text in enumerate(texts)}, merges, GPT2), texts


def test_bytes_are_256_different_printable_characters():
    assert len(set(BYTE_TO_CHAR)) == 256
    assert all(char.isprintable() and char != " " for char in BYTE_TO_CHAR)
    assert (BYTE_TO_CHAR[ord("A")], BYTE_TO_CHAR[ord(" ")]) == ("A", "\u0120")


def test_every_byte_decodes_to_itself():
    codec, _ = make_codec()
    assert codec.normal_bytes("".join(BYTE_TO_CHAR)) == bytes(range(256))


def test_merges_apply_in_order_and_not_across_words():
    codec, texts = make_codec(("a", "b"), ("b", "\u0120"), ("\u0120", "ab"))
    assert [texts[i] for i in codec.encode("ab ab", after_literal=True)] == ["ab", "\u0120ab"]


def test_missing_bytes_become_a_visible_replacement():
    codec, texts = make_codec(without=b"\x04\xf1")
    ids = codec.encode("a\x04b\U00040000", after_literal=True)
    assert b"".join(codec.normal_bytes(texts[i]) for i in ids).decode() == "a\ufffdb\ufffd"


def test_a_vocabulary_that_lacks_even_the_replacement_refuses():
    codec, _ = make_codec(without=b"\x04\xef")
    with pytest.raises(InvalidRequest, match="cannot say"):
        codec.encode("\x04", after_literal=True)


def test_a_merge_of_an_unknown_token_is_refused():
    with pytest.raises(ValueError, match="zz"):
        ByteLevelCodec({"a": 0}, [("a", "zz")], GPT2)
