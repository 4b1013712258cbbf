# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.tokenizer.base import TokenKind
from octavo.tokenizer.spm import CACHE_WORDS_MAX, ScoreMergeCodec

NORMAL, UNKNOWN, BYTE = int(TokenKind.NORMAL), int(TokenKind.UNKNOWN), int(TokenKind.BYTE)


def make_codec(
    pieces: list[str],
    *,
    with_bytes: bool = True,
    prefix: bool = False,
    cache_words_max: int = CACHE_WORDS_MAX,
) -> tuple[ScoreMergeCodec, list[str]]:
    """The first piece has the best score. Ids: <unk>, 256 bytes if asked for, then the pieces."""
    byte_texts = [f"<0x{byte:02X}>" for byte in range(256)] if with_bytes else []
    texts = ["<unk>", *byte_texts, *pieces]
    kinds = [UNKNOWN, *[BYTE] * len(byte_texts), *[NORMAL] * len(pieces)]
    scores = [0.0] * (1 + len(byte_texts)) + [-float(rank) for rank in range(len(pieces))]
    codec = ScoreMergeCodec(
        texts, kinds, scores, unknown_id=0, add_space_prefix=prefix, cache_words_max=cache_words_max
    )
    return codec, texts


def plain_merge(text: str, pieces: list[str]) -> list[str]:
    """The definition: join the best pair of neighbours, the leftmost of equals, and repeat."""
    parts = list(text)
    while True:
        joined = [a + b for a, b in itertools.pairwise(parts)]
        ranks = [(pieces.index(pair), i) for i, pair in enumerate(joined) if pair in pieces]
        if not ranks:
            return parts
        _, i = min(ranks)
        parts[i : i + 2] = [joined[i]]


@given(
    text=st.text(alphabet="abc ", max_size=30),
    pieces=st.lists(
        st.text(alphabet="abc\u2581", min_size=2, max_size=6), unique=True, max_size=24
    ),
)
def test_words_and_heap_give_what_the_definition_gives(text: str, pieces: list[str]):
    """Pieces such as "a▁b" are among these, so words that must not be cut are as well."""
    vocabulary = ["a", "b", "c", "\u2581", *pieces]
    codec, texts = make_codec(vocabulary)
    wanted = plain_merge(text.replace(" ", "\u2581"), vocabulary)
    for _ in range(2):  # the second time from the cache
        assert [texts[i] for i in codec.encode(text, after_literal=False)] == wanted


def test_equal_scores_merge_the_leftmost_first():
    codec, texts = make_codec(["a", "aa"])
    assert [texts[i] for i in codec.encode("aaa", after_literal=False)] == ["aa", "a"]


def test_unknown_characters_become_bytes_or_the_unknown_token():
    codec, texts = make_codec(["a"])
    euro = [texts[i] for i in codec.encode("a\u20ac", after_literal=False)]
    assert euro == ["a", "<0xE2>", "<0x82>", "<0xAC>"]
    codec, texts = make_codec(["a"], with_bytes=False)
    assert [texts[i] for i in codec.encode("a\u20ac", after_literal=False)] == ["a", "<unk>"]


@pytest.mark.parametrize(("after_literal", "wanted"), [(True, ["\u2581a"]), (False, ["a"])])
def test_space_prefix_begins_the_text_and_follows_literals(after_literal: bool, wanted: list[str]):
    codec, texts = make_codec(["\u2581a", "a", "\u2581"], prefix=True)
    assert [texts[i] for i in codec.encode("a", after_literal=after_literal)] == wanted


def test_a_byte_token_spelt_in_the_text_is_text():
    codec, texts = make_codec(list("<0x41>"))
    assert "<0x41>" not in {texts[i] for i in codec.encode("<0x41>", after_literal=False)}


def test_the_cache_is_bounded():
    codec, _ = make_codec(["a", "b", "\u2581"], cache_words_max=4)
    words = [f"{'a' * n}b" for n in range(1, 20)]
    first = [codec.encode(word, after_literal=False) for word in words]
    assert [codec.encode(word, after_literal=False) for word in words] == first
    assert len(codec._cache) <= 4
