# SPDX-License-Identifier: Apache-2.0
"""A tokenizer's vocabulary as the grammar library wants it."""

from __future__ import annotations

import threading
from typing import NamedTuple

import llguidance

from octavo.types.ports import Tokenizer


class ByteToken(NamedTuple):
    """A token that is one byte."""

    byte: int
    token_id: int


class Vocabulary:
    """Built once per engine, on first use, in the thread that needs it first: 0.2 s for 50,000
    tokens, a good second for 260,000. Thread-safe.

    To the library the text ends with one id that no model has, ``end_id``. Which of the model's ids
    end an answer differs from request to request, so ``Constraint`` puts them in its place.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._ll: llguidance.LLTokenizer | None = None
        self.size = tokenizer.vocab_size
        self.end_id = tokenizer.vocab_size
        self.mask_bytes = (tokenizer.vocab_size + 7) // 8
        self.byte_tokens: tuple[ByteToken, ...] = ()  # the first id of each byte that has one

    @property
    def ll(self) -> llguidance.LLTokenizer:
        """The library's own form."""
        with self._lock:
            if self._ll is None:
                self._ll = self._build()
            return self._ll

    def encode(self, text: str) -> list[int]:
        """Ids of a text that continues another one, as the model would write it."""
        return self._tokenizer.encode(text, add_special_tokens=False)

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokenizer.token_bytes(token_id)

    def _build(self) -> llguidance.LLTokenizer:
        source = _Source(self._tokenizer, self.end_id)
        first: dict[int, int] = {}
        special = set(source.special_token_ids)
        for token_id, token in enumerate(source.tokens[: self.size]):
            if len(token) == 1 and token_id not in special:
                first.setdefault(token[0], token_id)
        self.byte_tokens = tuple(ByteToken(byte, first[byte]) for byte in sorted(first))
        return llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(source), n_vocab=self.size + 1, eos_token=[self.end_id]
        )


class _Source:
    """What ``TokenizerWrapper`` reads: the bytes of every id, which are control, and ``encode``."""

    def __init__(self, tokenizer: Tokenizer, end_id: int) -> None:
        self._tokenizer = tokenizer
        self.bos_token_id = tokenizer.bos_token_id
        self.eos_token_id = end_id
        self.special_token_ids = [i for i in range(end_id) if tokenizer.is_special(i)]
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(end_id)]
        for token_id in self.special_token_ids:  # a name of its own, should it have none
            self.tokens[token_id] = self.tokens[token_id] or f"<|id-{token_id}|>".encode()
        self.tokens.append(b"<|end-of-grammar|>")
        self.special_token_ids.append(end_id)

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode()  # what is no UTF-8 the library cuts into tokens itself
        return self._tokenizer.encode(text, add_special_tokens=False)
