# SPDX-License-Identifier: Apache-2.0
"""One tokenizer for every kind of vocabulary: the kind itself is a ``Codec`` of a few methods.

encode: text -> [literals | fragments] -> ids. A *literal* is a control or user-defined token spelt
out in the text; it is found first (leftmost, then longest) and becomes its id. What lies between
two literals is a *fragment* and goes through the codec.

The other direction needs no codec state at all: a token is a fixed run of bytes, so the text of
some ids is the UTF-8 decoding of their bytes, one after the other. ``detokenizer.py`` does the same
a token at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from octavo.tokenizer.chat_template import ChatTemplate
from octavo.types.errors import InvalidRequest


class TokenKind(IntEnum):
    """What a vocabulary entry is for; the numbers are those of GGUF's token_type."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2  # stands for what the vocabulary cannot say
    CONTROL = 3  # begins, ends, separates: never part of the text
    USER_DEFINED = 4  # matched literally, before any merging
    UNUSED = 5
    BYTE = 6  # spelt <0xNN>, is that byte


SPECIAL_KINDS = frozenset({TokenKind.CONTROL, TokenKind.UNKNOWN})
LITERAL_KINDS = SPECIAL_KINDS | {TokenKind.USER_DEFINED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocab:
    """A vocabulary as data, already validated. ``texts[i]`` and ``kinds[i]`` describe id i."""

    texts: Sequence[str]
    kinds: Sequence[int]
    bos_token_id: int | None
    eos_token_id: int | None
    stop_token_ids: frozenset[int]
    add_bos_token: bool
    add_eos_token: bool


class Codec(Protocol):
    """How one kind of vocabulary turns a fragment into ids and a normal token into bytes."""

    @property
    def has_space_prefix(self) -> bool:
        """Whether a text is encoded with a space in front that decoding takes away again."""

    def encode(self, fragment: str, *, after_literal: bool) -> list[int]:
        """Ids of a fragment that holds no literal. ``after_literal``: it begins the text or follows
        a literal.
        """

    def normal_bytes(self, text: str) -> bytes:
        """The bytes of a token of kind NORMAL (also UNDEFINED, UNUSED) from its vocabulary text."""


class VocabTokenizer:
    """``types.ports.Tokenizer`` over a ``Vocab``. Immutable once built, safe for many threads.

    encode costs O(len(text)) for all practical text, decode O(len(token_ids)).
    """

    def __init__(self, vocab: Vocab, codec: Codec, chat_template: str | None = None) -> None:
        self._vocab = vocab
        self._codec = codec
        self._literals = LiteralSplitter(_literal_ids(vocab))
        self._chat = self._make_chat(chat_template)

    @property
    def vocab_size(self) -> int:
        return len(self._vocab.texts)

    @property
    def bos_token_id(self) -> int | None:
        return self._vocab.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        return self._vocab.eos_token_id

    @property
    def stop_token_ids(self) -> frozenset[int]:
        return self._vocab.stop_token_ids

    @property
    def chat_template(self) -> str | None:
        return self._chat.source if self._chat else None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of ``text``; with ``add_special_tokens`` the BOS and EOS that the file asks for.

        Raises ``InvalidRequest`` for text that is no Unicode (a lone surrogate).
        """
        check_unicode(text)
        vocab = self._vocab
        ids: list[int] = []
        if add_special_tokens and vocab.add_bos_token and vocab.bos_token_id is not None:
            ids.append(vocab.bos_token_id)
        after_literal = True
        for part in self._literals.split(text):
            after_literal = self._encode_part(part, after_literal, ids)
        if add_special_tokens and vocab.add_eos_token and vocab.eos_token_id is not None:
            ids.append(vocab.eos_token_id)
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ``token_ids`` as a text of its own: the space that some vocabularies put before
        the first word is taken away. (``Detokenizer`` continues a text and keeps it.)
        """
        shown = [i for i in token_ids if not (skip_special_tokens and self.is_special(i))]
        text = b"".join(map(self.token_bytes, shown)).decode("utf-8", "replace")
        if self._codec.has_space_prefix and shown and self.token_bytes(shown[0])[:1] == b" ":
            return text[1:]
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token. Raises ``InvalidRequest`` for an id out of range."""
        kind = self._kind(token_id)
        text = self._vocab.texts[token_id]
        if kind == TokenKind.BYTE:
            return bytes([byte_value(text)])
        if kind in LITERAL_KINDS:
            return text.encode("utf-8", "surrogateescape")
        return self._codec.normal_bytes(text)

    def is_special(self, token_id: int) -> bool:
        return self._kind(token_id) in SPECIAL_KINDS

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt text of a conversation, complete: encode it with ``add_special_tokens=False``.

        Some templates spell BOS and some leave it to the tokenizer; here it is spelt exactly once
        whenever the model wants it. EOS is never added, for the answer follows.

        Raises ``InvalidRequest`` when the model has no template or it refuses the messages.
        """
        if self._chat is None:
            raise InvalidRequest(
                "this model has no chat template (it is a base model): use a plain prompt",
                param="messages",
            )
        text = self._chat.render(
            messages, add_generation_prompt=add_generation_prompt, variables=variables
        )
        bos = self._bos_text()
        return text if text.startswith(bos) else bos + text

    def _bos_text(self) -> str:
        """What every prompt begins with: the BOS token spelt out, or nothing."""
        vocab = self._vocab
        if not vocab.add_bos_token or vocab.bos_token_id is None:
            return ""
        return vocab.texts[vocab.bos_token_id] if self.is_special(vocab.bos_token_id) else ""

    def _encode_part(self, part: str | int, after_literal: bool, ids: list[int]) -> bool:
        if isinstance(part, int):
            ids.append(part)
            return True
        ids.extend(self._codec.encode(part, after_literal=after_literal))
        return False

    def _kind(self, token_id: int) -> int:
        if not 0 <= token_id < len(self._vocab.kinds):  # a negative index would wrap around
            raise InvalidRequest(
                f"token id {token_id} is outside the vocabulary [0, {self.vocab_size})",
                param="token_ids",
            )
        return self._vocab.kinds[token_id]

    def _make_chat(self, source: str | None) -> ChatTemplate | None:
        if source is None:
            return None
        vocab = self._vocab
        ids = {"bos_token": vocab.bos_token_id, "eos_token": vocab.eos_token_id}
        names = {name: vocab.texts[i] for name, i in ids.items() if i is not None}
        return ChatTemplate(source, special_tokens=names)


class LiteralSplitter:
    """Finds given literals in a text: leftmost first, at one place the longest.

    A vocabulary may have thousands (Gemma 3: 6,414, most of them ``<unusedN>``), too many for one
    alternation. So one regular expression finds the *heads* (the first two characters, a few dozen
    in all) and a table of lengths per head finds the literal.
    """

    def __init__(self, literals: Mapping[str, int]) -> None:
        self._ids = {text: token_id for text, token_id in literals.items() if text}
        single = {text for text in self._ids if len(text) == 1}
        lengths: dict[str, set[int]] = {}
        for text in self._ids:  # one-character heads swallow longer ones: heads are prefix-free
            head = text[0] if text[0] in single else text[:2]
            lengths.setdefault(head, set()).add(len(text))
        self._lengths = {head: sorted(sizes, reverse=True) for head, sizes in lengths.items()}
        self._heads = re.compile("|".join(map(re.escape, lengths))) if lengths else None

    def split(self, text: str) -> Iterator[str | int]:
        """Non-empty fragments and literal ids in the order of the text."""
        start = position = 0
        while self._heads and (head := self._heads.search(text, position)):
            position = head.start()
            size = self._match(text, position, head.group())
            if not size:
                position += 1
                continue
            if position > start:
                yield text[start:position]
            yield self._ids[text[position : position + size]]
            start = position = position + size
        if start < len(text):
            yield text[start:]

    def _match(self, text: str, position: int, head: str) -> int:
        for size in self._lengths[head]:
            if text[position : position + size] in self._ids:
                return size
        return 0


def check_unicode(text: str) -> None:
    """Raise ``InvalidRequest`` if ``text`` holds half of a surrogate pair (JSON can spell one)."""
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise InvalidRequest(
            f"text is not valid Unicode: lone surrogate U+{code:04X} at character {error.start}"
        ) from None


def byte_value(text: str) -> int:
    """The byte that a BYTE token stands for: 10 for ``<0x0A>``; ``ValueError`` for other texts."""
    if len(text) != 6 or not text.startswith("<0x") or text[5] != ">":
        raise ValueError(f"a byte token must be spelt <0xNN>, got {text!r}")
    return int(text[3:5], 16)


def _literal_ids(vocab: Vocab) -> dict[str, int]:
    literals: dict[str, int] = {}
    for token_id, kind in enumerate(vocab.kinds):
        if kind in LITERAL_KINDS:
            literals.setdefault(vocab.texts[token_id], token_id)
    return literals
