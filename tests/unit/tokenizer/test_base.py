# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.tokenizer.base import LiteralSplitter, byte_value, check_unicode
from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf
from octavo.types.errors import InvalidRequest
from tokenizer_vocabs import byte_level_metadata, sentence_piece_metadata

LITERALS = {"\n": 1, "\n\n": 2, "\n\n\n": 3, "  ": 4, "<a>": 5, "<a><b>": 6, "<b": 7, "": 8}


def plain_split(text: str) -> list[str | int]:
    """The definition: at each place the longest literal, else one character of a fragment."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        literal = max((x for x in LITERALS if x and text.startswith(x, at)), key=len, default=None)
        if literal is not None:
            parts.append(LITERALS[literal])
            at += len(literal)
            continue
        if parts and isinstance(parts[-1], str):
            parts[-1] += text[at]
        else:
            parts.append(text[at])
        at += 1
    return parts


@given(st.lists(st.sampled_from([*LITERALS, "<", "a", ">", " ", "x"]), max_size=20).map("".join))
def test_literals_are_found_leftmost_and_longest(text: str):
    assert list(LiteralSplitter(LITERALS).split(text)) == plain_split(text)


def test_no_literals_is_one_fragment():
    assert list(LiteralSplitter({}).split("abc")) == ["abc"]
    assert list(LiteralSplitter({}).split("")) == []


def test_control_tokens_spelt_in_the_text_become_their_ids():
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    ids = tokenizer.encode("<|im_start|>a<|im_end|>", add_special_tokens=False)
    assert (ids[0], ids[-1]) == (0, 1)
    assert tokenizer.decode(ids) == "a"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>a<|im_end|>"


def test_bos_and_eos_are_added_as_the_file_says():
    metadata = sentence_piece_metadata()
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("a") == [1, *tokenizer.encode("a", add_special_tokens=False)]
    both = tokenizer_from_gguf(metadata | {"tokenizer.ggml.add_eos_token": True})
    assert both.encode("") == [1, 2]
    none = tokenizer_from_gguf(metadata | {"tokenizer.ggml.add_bos_token": False})
    assert none.encode("") == []


def test_decode_takes_back_the_space_that_encode_put_in_front():
    tokenizer = tokenizer_from_gguf(sentence_piece_metadata())
    for text in ("a b", " a", "  a", "", " "):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
    first = tokenizer.encode("a", add_special_tokens=False)[0]
    assert tokenizer.token_bytes(first)[:1] == b" "  # a token's own bytes keep it


@pytest.mark.parametrize("token_id", [-1, 10**9])
def test_ids_out_of_range_are_refused(token_id: int):
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    for use in (tokenizer.token_bytes, tokenizer.is_special, lambda i: tokenizer.decode([i])):
        with pytest.raises(InvalidRequest, match="outside the vocabulary"):
            use(token_id)


def test_half_a_surrogate_pair_is_refused_with_its_place():
    with pytest.raises(InvalidRequest, match=r"U\+D800 at character 1"):
        check_unicode("\u00e9\ud800")
    check_unicode("\U0001f600")


def test_byte_values():
    assert byte_value("<0x0A>") == 10
    for text in ("<0x0>", "<0xGG>", "0x0A", "<0x0A]"):
        with pytest.raises(ValueError, match=r"0x|base 16"):
            byte_value(text)


CHAT = "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"


@pytest.mark.parametrize("template", [CHAT, "{{ bos_token }}" + CHAT])
def test_a_rendered_chat_has_exactly_one_bos(template: str):
    tokenizer = tokenizer_from_gguf(
        sentence_piece_metadata() | {"tokenizer.chat_template": template}
    )
    text = tokenizer.render_chat([{"role": "b", "content": "a"}])
    assert text == "<s>b:a\n"
    assert tokenizer.encode(text, add_special_tokens=False).count(1) == 1


def test_a_model_that_wants_no_bos_gets_none():
    metadata = byte_level_metadata() | {"tokenizer.chat_template": CHAT}
    assert tokenizer_from_gguf(metadata).render_chat([]) == ""


def test_a_base_model_has_no_chat():
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    assert tokenizer.chat_template is None
    with pytest.raises(InvalidRequest, match="no chat template") as caught:
        tokenizer.render_chat([{"role": "user", "content": "hi"}])
    assert caught.value.param == "messages"


def test_threads_get_the_same_ids():
    tokenizer = tokenizer_from_gguf(sentence_piece_metadata())
    texts = [f"a{'b' * n} a" for n in range(40)]
    wanted = [tokenizer_from_gguf(sentence_piece_metadata()).encode(text) for text in texts]
    results: list[list[list[int]]] = []
    threads = [
        threading.Thread(target=lambda: results.append([tokenizer.encode(t) for t in texts]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [wanted] * 8
