# SPDX-License-Identifier: Apache-2.0
"""How far one sequence has come in its grammar, and what it may say next."""

from __future__ import annotations

import llguidance

from octavo.grammar.closing import Closer
from octavo.grammar.stats import GrammarStats
from octavo.grammar.vocabulary import Vocabulary
from octavo.types.errors import CorruptState, GrammarFailed
from octavo.types.ports import Clock

# Beams for a new ending after a token, (width, states): deep, then wide.
ANSWER_BEAMS = ((1, 160), (4, 48))
ANSWER_TRIES = 10_000  # states for a whole answer: some one or two seconds


class GrammarConstraint:
    """``types.ports.Constraint`` over the grammar library.

    The mask for the next token is made when the last one is accepted, so whatever can fail fails
    there, and ``allowed`` only hands it out. Once the grammar may end, the request's stop ids are
    allowed, and at no other time unless nothing else is.

    With a ``closer`` the text is complete when the tokens run out. The proof: an ending of at most
    ``num_tokens_left`` tokens is known at all times. A token that was sampled is kept if an ending
    for the text with it is found that is short enough; otherwise the sequence gets the first token
    of the known ending in its place, and from then on the rest of it. So the search for endings may
    fail without harm.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        vocab: Vocabulary,
        *,
        stop_ids: frozenset[int],
        stats: GrammarStats,
        clock: Clock,
        mask_s_max: float,
    ) -> None:
        self._matcher = matcher
        self._vocab = vocab
        self._stop_ids = stop_ids
        self._stats = stats
        self._clock = clock
        self._mask_s_max = mask_s_max
        self._closer: Closer | None = None
        self._ending: tuple[int, ...] = ()
        self._num_tokens_left = 0
        self._end_id = 0
        self._has_stopped = False
        self._is_at_end = False  # nothing but the end may follow
        self.was_cut = False
        self._mask = self._next_mask()

    def close_in_time(
        self, closer: Closer, ending: tuple[int, ...], *, num_tokens: int, end_id: int
    ) -> None:
        """Before the first token: complete the text within ``num_tokens``, knowing an ending.
        ``end_id`` stands for the end where nothing more may be said."""
        self._closer, self._ending = closer, ending
        self._num_tokens_left, self._end_id = num_tokens, end_id
        self._narrow()

    def allowed(self) -> bytes:
        return self._mask

    @property
    def is_complete(self) -> bool:
        return self._has_stopped or (self.was_cut and not self._ending) or self._is_at_end

    def accept(self, token_id: int) -> int:
        if not self._allows(token_id):
            raise CorruptState(f"token {token_id} was sampled and the grammar does not allow it")
        start = self._clock()
        try:
            return self._take(token_id)
        finally:
            self._stats.accepted(self._clock() - start)

    def _allows(self, token_id: int) -> bool:
        return 0 <= token_id < self._vocab.size and bool(
            self._mask[token_id >> 3] >> (token_id & 7) & 1
        )

    def _take(self, token_id: int) -> int:
        self._num_tokens_left -= 1
        if token_id in self._stop_ids and self._matcher.is_accepting():
            self._has_stopped = True
            return token_id
        if self._closer is not None and not self._keeps(token_id, self._closer):
            self._cut()
            if not self._ending:
                self._has_stopped = True
                return self._end_id
            token_id, *rest = self._ending
            self._ending = tuple(rest)
        if not self._matcher.consume_token(token_id):
            raise GrammarFailed(self._matcher.get_error() or f"token {token_id} was refused")
        self._mask = self._next_mask()
        self._narrow()
        return token_id

    def _keeps(self, token_id: int, closer: Closer) -> bool:
        """Whether the text with this token can still be completed; then that is how."""
        if self.was_cut:
            return False
        if self._ending and token_id == self._ending[0]:
            self._ending = self._ending[1:]
            return True
        after = self._matcher.deep_copy()
        if not after.consume_token(token_id):
            return True  # the matcher itself will fail in the same way
        most = self._num_tokens_left
        found = closer.reuse(after, self._ending, num_tokens_max=most)
        if found is None:
            found = closer.rest(after, self._ending, token_id, num_tokens_max=most)
        for width, num_tries in ANSWER_BEAMS:
            if found is None:
                found = closer.find(after, num_tokens_max=most, width=width, num_tries=num_tries)
        if found is None:
            return False
        self._ending = found
        return True

    def _narrow(self) -> None:
        """Where only the known ending is left to be said, nothing else is allowed."""
        if self._closer is None or not self._ending:
            return
        if self.was_cut or len(self._ending) >= self._num_tokens_left:
            if int.from_bytes(self._mask, "little").bit_count() > 1:
                self._cut()
            self._mask = self._only(self._ending[0])

    def _cut(self) -> None:
        self._stats.num_cut += not self.was_cut
        self.was_cut = True

    def _only(self, token_id: int) -> bytes:
        mask = bytearray(self._vocab.mask_bytes)
        mask[token_id >> 3] |= 1 << (token_id & 7)
        return bytes(mask)

    def _next_mask(self) -> bytes:
        matcher, start = self._matcher, self._clock()
        mask = bytearray(matcher.compute_bitmask()[: self._vocab.mask_bytes])
        spent_s = self._clock() - start
        self._stats.masked(spent_s)
        if matcher.is_error():
            raise GrammarFailed(matcher.get_error())
        if spent_s > self._mask_s_max:
            raise GrammarFailed(f"one mask took {spent_s:.2f} s, more than {self._mask_s_max} s")
        if self._vocab.size & 7:  # the library's own end has a bit behind the vocabulary
            mask[-1] &= (1 << (self._vocab.size & 7)) - 1
        is_end = bool(matcher.is_accepting())
        self._is_at_end = is_end and not any(mask)
        return self._with_stops(mask, is_end=is_end)

    def _with_stops(self, mask: bytearray, *, is_end: bool) -> bytes:
        """The stop set is allowed exactly when the text may end. A stop id of the caller may also
        be a word of the grammar, and the only one that goes on: then it stays."""
        plain = bytes(mask)
        for token_id in self._stop_ids:
            bit = 1 << (token_id & 7)
            if is_end:
                mask[token_id >> 3] |= bit
            else:
                mask[token_id >> 3] &= ~bit
        return bytes(mask) if any(mask) else plain
