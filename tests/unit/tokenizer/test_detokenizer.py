# SPDX-License-Identifier: Apache-2.0
"""Every property is checked under random cuts of the same bytes into tokens."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.tokenizer.detokenizer import Detokenizer, StopString

SPECIAL = b"<special>"


class ChunkTokenizer:
    """Token i is ``chunks[i]``; the chunk ``SPECIAL`` is a control token."""

    bos_token_id = eos_token_id = chat_template = None
    stop_token_ids: frozenset[int] = frozenset()

    def __init__(self, chunks: Sequence[bytes]) -> None:
        self.chunks = chunks
        self.num_reads = 0

    @property
    def vocab_size(self) -> int:
        return len(self.chunks)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        raise NotImplementedError

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        raise NotImplementedError

    def token_bytes(self, token_id: int) -> bytes:
        self.num_reads += 1
        return self.chunks[token_id]

    def is_special(self, token_id: int) -> bool:
        return self.chunks[token_id] == SPECIAL

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        kept = [i for i in token_ids if not (skip_special_tokens and self.is_special(i))]
        return b"".join(self.chunks[i] for i in kept).decode("utf-8", "replace")


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def first_stop(text: str, stops: Sequence[str], first_end: int = 0) -> tuple[int, str] | None:
    """The rule, spelt out: the first end wins, of equal ends the longest stop string."""
    for end in range(first_end, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return end, max(ending, key=len)
    return None


PLACES = st.lists(st.integers(0, 200), max_size=30)
NARROW_TEXT = st.text(alphabet="ab\u00e9\U0001f600", max_size=24)
STOPS = st.lists(st.text(alphabet="ab\u00e9\U0001f600", min_size=1, max_size=4), max_size=3)


@given(data=st.binary(max_size=40), places=PLACES)
def test_any_bytes_end_as_their_decoding(data: bytes, places: list[int]):
    tokenizer = ChunkTokenizer(cut(data, places))
    detokenizer = Detokenizer(tokenizer)
    for token_id in range(tokenizer.vocab_size):
        detokenizer.append(token_id)
    detokenizer.finish()
    assert detokenizer.text == tokenizer.decode(range(tokenizer.vocab_size))


@given(text=NARROW_TEXT, stops=STOPS, places=PLACES, include=st.booleans())
def test_stop_strings_cut_where_the_rule_says(
    text: str, stops: list[str], places: list[int], include: bool
):
    tokenizer = ChunkTokenizer(cut(text.encode(), places))
    detokenizer = Detokenizer(tokenizer, stop=stops, include_stop=include)
    matched = [m for i in range(tokenizer.vocab_size) if (m := detokenizer.append(i)) is not None]
    found = first_stop(text, stops)
    if found is None:
        assert not matched
        assert detokenizer.finish() is None
        assert detokenizer.text == text
    else:
        end, stop = found
        assert matched[0] == stop == detokenizer.finish() == detokenizer.stop_reason
        assert detokenizer.text == text[: end if include else end - len(stop)]


@given(text=NARROW_TEXT, stops=STOPS, places=PLACES)
def test_shown_text_only_grows_and_holds_back_no_more_than_it_must(
    text: str, stops: list[str], places: list[int]
):
    chunks = cut(text.encode(), places)
    detokenizer = Detokenizer(ChunkTokenizer(chunks), stop=stops)
    before, taken = "", ""
    for token_id in range(len(chunks)):
        if detokenizer.append(token_id) is not None:
            break
        certain = b"".join(chunks[: token_id + 1]).decode("utf-8", "ignore")
        held = max(
            (n for stop in stops for n in range(len(stop)) if certain.endswith(stop[:n])),
            default=0,
        )
        assert detokenizer.text == certain[: len(certain) - held]
        assert detokenizer.text.startswith(before)
        before = detokenizer.text
        taken += detokenizer.take()
        assert taken == before
    detokenizer.finish()
    assert taken + detokenizer.take() == detokenizer.text


@given(text=NARROW_TEXT, stops=STOPS, places=PLACES, min_tokens=st.integers(0, 6))
def test_a_stop_before_min_tokens_is_ordinary_text(
    text: str, stops: list[str], places: list[int], min_tokens: int
):
    chunks = cut(text.encode(), places)
    detokenizer = Detokenizer(ChunkTokenizer(chunks), stop=stops, min_tokens=min_tokens)
    for token_id in range(len(chunks)):
        detokenizer.append(token_id)
    detokenizer.finish()
    # a stop counts if its last character is complete only with token number min_tokens or later
    early = b"".join(chunks[: max(min_tokens - 1, 0)]).decode("utf-8", "ignore")
    found = first_stop(text, stops, len(early) + 1) if len(chunks) >= min_tokens else None
    assert detokenizer.text == (text if found is None else text[: found[0] - len(found[1])])


def test_special_tokens_are_left_out_or_shown():
    tokenizer = ChunkTokenizer([b"\xf0\x9f", SPECIAL, b"\x98\x80!"])
    hiding, showing = Detokenizer(tokenizer), Detokenizer(tokenizer, skip_special_tokens=False)
    for token_id in range(3):
        hiding.append(token_id)
        showing.append(token_id)
    assert hiding.text == "\U0001f600!"
    assert showing.text == "\ufffd<special>\ufffd\ufffd!"


def test_some_special_tokens_stay_when_the_others_go():
    chunks = [b"a", SPECIAL, b"b", SPECIAL]
    detokenizer = Detokenizer(ChunkTokenizer(chunks), keep_special_ids=(3,))
    for token_id in range(4):
        detokenizer.append(token_id)
    assert detokenizer.text == f"ab{SPECIAL.decode()}"


def test_finish_releases_once():
    detokenizer = Detokenizer(ChunkTokenizer([b"answer\nEN", b"\xe2\x82"]), stop=["END"])
    detokenizer.append(0)
    assert detokenizer.text == "answer\n"
    detokenizer.append(1)
    assert detokenizer.text == "answer\n"  # "EN" and half a code point are held
    for _ in range(2):
        assert detokenizer.finish() is None
        assert detokenizer.text == "answer\nEN\ufffd"
    assert detokenizer.take() == "answer\nEN\ufffd"
    assert detokenizer.take() == ""


def test_nothing_changes_after_a_stop():
    detokenizer = Detokenizer(ChunkTokenizer([b"yes.", b" more"]), stop=["."])
    assert detokenizer.append(0) == "."
    assert detokenizer.append(1) == "."
    assert detokenizer.finish() == "."
    assert detokenizer.text == "yes"


def test_each_token_is_read_once():
    tokenizer = ChunkTokenizer([b"ab", b"\xc3", b"\xa9"] * 100)
    detokenizer = Detokenizer(tokenizer, stop=["aba"])
    for token_id in range(300):
        detokenizer.append(token_id)
    assert tokenizer.num_reads == 300


@pytest.mark.parametrize("num_chars", [1000])
def test_stop_search_is_linear_even_for_a_repetitive_stop(num_chars: int):
    """The worst case of naive search: every place matches almost to the end."""

    class CountingStop(StopString):
        num_steps = 0

        def _step(self, char: str) -> None:
            self.num_steps += 1
            super()._step(char)

    stop = CountingStop("a" * 100 + "b")
    assert stop.find("a" * num_chars) is None
    assert stop.num_steps <= num_chars
    assert stop.num_matched == 100
