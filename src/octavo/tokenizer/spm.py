# SPDX-License-Identifier: Apache-2.0
"""SentencePiece's BPE, driven by scores: merge the adjacent pair whose concatenation is the piece
with the highest score, the leftmost of equals, until no pair is a piece.

GGUF keeps scores, not merges. Deriving half a million merges for Gemma 3 would take seconds at each
load; a heap over the scores needs none. What makes it fast in Python is the cut into words first:
no piece holds "x▁" inside (but for a few known x), so no merge can ever cross the place in front of
a ▁ and each word may be merged alone, and remembered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from octavo.tokenizer.base import TokenKind, byte_value

SPACE = "\u2581"  # SentencePiece writes a space as this
CACHE_WORDS_MAX = 1 << 16  # x about 250 bytes = 16 MB at most
CACHE_WORD_LENGTH_MAX = 48  # longer words hardly ever come again


class ScoreMergeCodec:
    """Merges by score, with byte fallback. Safe for many threads: the cache is a dict of immutable
    results, so the worst that a race can do is to compute a word twice.

    A word of n characters costs O(n log n) the first time.
    """

    def __init__(
        self,
        texts: Sequence[str],
        kinds: Sequence[int],
        scores: Sequence[float],
        *,
        unknown_id: int | None,
        add_space_prefix: bool,
        cache_words_max: int = CACHE_WORDS_MAX,
    ) -> None:
        normal = int(TokenKind.NORMAL)  # a plain int compares faster, 262,144 times
        self._ids = {
            text: token_id
            for token_id, (text, kind) in enumerate(zip(texts, kinds, strict=True))
            if kind == normal
        }
        self._scores = scores
        self._byte_ids = {
            byte_value(texts[token_id]): token_id
            for token_id, kind in enumerate(kinds)
            if kind == TokenKind.BYTE
        }
        self._unknown_id = unknown_id
        self._add_space_prefix = add_space_prefix
        self._words = _word_pattern(self._ids)
        self._cache: dict[str, tuple[int, ...]] = {}
        self._cache_words_max = cache_words_max

    @property
    def has_space_prefix(self) -> bool:
        return self._add_space_prefix

    def encode(self, fragment: str, *, after_literal: bool) -> list[int]:
        text = fragment.replace(" ", SPACE)
        if self._add_space_prefix and after_literal:
            text = SPACE + text
        ids: list[int] = []
        cache = self._cache
        for word in self._words.findall(text):
            known = cache.get(word)
            ids.extend(self._encode_word(word) if known is None else known)
        return ids

    def normal_bytes(self, text: str) -> bytes:
        return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")

    def _encode_word(self, word: str) -> tuple[int, ...]:
        pieces = _merge(word, self._ids, self._scores)
        ids = tuple(token_id for piece in pieces for token_id in self._piece_ids(piece))
        if len(word) <= CACHE_WORD_LENGTH_MAX:
            if len(self._cache) >= self._cache_words_max:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def _piece_ids(self, piece: str) -> list[int]:
        """A piece is in the vocabulary, or one character that becomes its bytes, or unknown."""
        token_id = self._ids.get(piece)
        if token_id is not None:
            return [token_id]
        data = piece.encode("utf-8")
        if all(byte in self._byte_ids for byte in data):
            return [self._byte_ids[byte] for byte in data]
        return [] if self._unknown_id is None else [self._unknown_id]


def _merge(word: str, ids: dict[str, int], scores: Sequence[float]) -> list[str]:
    """The pieces of ``word``. A heap entry (-score, left, size) proposes to join the piece that
    begins at ``left`` with its neighbour into ``size`` characters; it is stale unless the two still
    have that size together, for pieces only ever grow.
    """
    size = [1] * len(word)  # of the piece that begins here; 0 inside a piece
    before = list(range(-1, len(word) - 1))  # where the piece on the left begins
    heap = [
        (-scores[token_id], left, 2)
        for left in range(len(word) - 1)
        if (token_id := ids.get(word[left : left + 2])) is not None
    ]
    heapify(heap)

    def propose(left: int, total: int) -> None:
        token_id = ids.get(word[left : left + total])
        if token_id is not None:
            heappush(heap, (-scores[token_id], left, total))

    while heap:
        _, left, total = heappop(heap)
        right = left + size[left]
        if not size[left] or right >= len(word) or size[left] + size[right] != total:
            continue
        size[left], size[right] = total, 0
        end = left + total
        if end < len(word):
            before[end] = left
            propose(left, total + size[end])
        if left:
            propose(before[left], size[before[left]] + total)
    return [word[left : left + n] for left, n in enumerate(size) if n]


def _word_pattern(pieces: dict[str, int]) -> re.Pattern[str]:
    """Matches one word: a run of ▁ and what follows, up to the next run.

    A run may be cut off only from a character that no piece holds in front of a ▁; after any other
    (Gemma 3 has one piece of the kind, ">▁</") the word goes on.
    """
    joining = {
        piece[at - 1]
        for piece in pieces
        if SPACE in piece
        for at in range(1, len(piece))
        if piece[at] == SPACE and piece[at - 1] != SPACE
    }
    word = f"(?:{SPACE}+[^{SPACE}]*|[^{SPACE}]+)"
    if joining:
        follows = "".join(map(re.escape, sorted(joining)))
        word += f"(?:(?<=[{follows}]){SPACE}+[^{SPACE}]*)*"
    return re.compile(word)
