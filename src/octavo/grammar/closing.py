# SPDX-License-Identifier: Apache-2.0
"""Short ways to end a text that a grammar has begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import llguidance

from octavo.grammar.vocabulary import ByteToken, Vocabulary

BRANCHES_MAX = 14  # bytes tried at one place
SAME_KIND_MAX = 3  # of these, letters of one case, or digits
WIDE = 60  # so many bytes are allowed only inside a text, where a bracket ends nothing
SKIPPED_MAX = 3
RECENT_KINDS = 8
QUOTE = ord('"')


class Closer:
    """Finds endings by a beam search over bytes; those likely to end something go first.

    Whether an ending is one is the grammar's word alone, so what is returned is right; that nothing
    is returned does not say that there is none. Endings are short, not always the shortest.

    ``num_tries`` is how many states it looks at in all, in all searches together: 50 to 100 us each
    for most grammars. Afterwards it finds nothing more.
    """

    def __init__(self, vocab: Vocabulary, *, num_tries: int) -> None:
        self._vocab = vocab
        self._ll = vocab.ll
        self._num_tries_left = num_tries

    def ends(self, matcher: llguidance.LLMatcher, ending: tuple[int, ...]) -> bool:
        """Do these tokens complete the text? The matcher stays where it is. Some 10 us."""
        tokens = [*ending, self._vocab.end_id]
        return bool(matcher.validate_tokens(tokens) == len(tokens))

    def reuse(
        self, matcher: llguidance.LLMatcher, ending: tuple[int, ...], *, num_tokens_max: int
    ) -> tuple[int, ...] | None:
        """The ending of a shorter text, if it still is one, or what is left of it."""
        for num_skipped in range(min(SKIPPED_MAX, len(ending)) + 1):
            rest = ending[num_skipped:]
            if len(rest) <= num_tokens_max and self.ends(matcher, rest):
                return rest
        return None

    def rest(
        self,
        matcher: llguidance.LLMatcher,
        ending: tuple[int, ...],
        token_id: int,
        *,
        num_tokens_max: int,
    ) -> tuple[int, ...] | None:
        """What remains of an ending after a token that says so many bytes of it: the same in other
        pieces, or others in their place."""
        num_said, num_bytes, num_parts = len(self._vocab.token_bytes(token_id)), 0, 0
        last = b""
        while num_bytes < num_said and num_parts < len(ending):
            last = self._vocab.token_bytes(ending[num_parts])
            num_bytes += len(last)
            num_parts += 1
        if num_bytes < num_said:
            return None
        try:
            between = last[len(last) - (num_bytes - num_said) :].decode()
        except UnicodeDecodeError:
            return None
        rest = (*self._vocab.encode(between), *ending[num_parts:])
        return rest if len(rest) <= num_tokens_max and self.ends(matcher, rest) else None

    def find(
        self,
        matcher: llguidance.LLMatcher,
        *,
        num_tokens_max: int,
        width: int,
        num_tries: int,
    ) -> tuple[int, ...] | None:
        """An ending of at most ``num_tokens_max`` tokens; None when a beam of this width has looked
        at ``num_tries`` states and found none."""
        for found in self._search(matcher, width, num_tries):
            ending = self._shortened(matcher, found)
            if len(ending) <= num_tokens_max:
                return ending
        return None

    def _search(
        self, matcher: llguidance.LLMatcher, width: int, num_tries: int
    ) -> Iterator[tuple[int, ...]]:
        """Endings, those with the fewest choices first."""
        beam = [_State(matcher.deep_copy(), (), 0, ())]
        while beam:
            seen: set[bytes] = set()
            ended: list[tuple[int, ...]] = []
            branches: list[tuple[int, int, _State, ByteToken]] = []
            for state in beam:
                if num_tries < 1 or self._num_tries_left < 1:
                    return
                num_tries -= 1
                self._num_tries_left -= 1
                self._skip_forced(state)
                if state.matcher.is_accepting():
                    ended.append(state.tokens)
                    continue
                mask = state.matcher.compute_bitmask()
                if mask in seen:  # most likely the same place of the grammar
                    continue
                seen.add(mask)
                for cost, token in self._branches(state, mask):
                    branches.append((state.cost + cost, len(branches), state, token))
            yield from sorted(ended, key=len)
            branches.sort(key=lambda branch: branch[:2])
            beam = _best(branches, width)

    def _skip_forced(self, state: _State) -> None:
        """On to the next place where there is a choice."""
        forced = state.matcher.compute_ff_tokens()
        if forced and state.matcher.consume_tokens(forced):
            state.tokens = (*state.tokens, *forced)

    def _branches(self, state: _State, mask: bytes) -> list[tuple[int, ByteToken]]:
        """Bytes that are allowed, and what each costs; a few of each kind."""
        allowed = [
            token
            for token in self._vocab.byte_tokens
            if mask[token.token_id >> 3] >> (token.token_id & 7) & 1
        ]
        is_wide = len(allowed) > WIDE
        costs = _WIDE_COSTS if is_wide else _COSTS
        used = Counter(state.tokens)
        allowed.sort(key=lambda token: used[token.token_id])
        num_of_kind: Counter[int] = Counter()
        branches = []
        for token in allowed:
            kind = _KINDS[token.byte]
            num_of_kind[kind] += 1
            if num_of_kind[kind] <= SAME_KIND_MAX:
                is_end = is_wide and kind == QUOTE
                again = 0 if is_end else state.recent.count(kind)
                branches.append((costs[kind] + num_of_kind[kind] - 1 + again, token))
        branches.sort(key=lambda branch: branch[0])
        return branches[:BRANCHES_MAX]

    def _shortened(self, matcher: llguidance.LLMatcher, ending: tuple[int, ...]) -> tuple[int, ...]:
        """The same text in the tokens that the model would use, if they are fewer."""
        try:
            text = b"".join(map(self._vocab.token_bytes, ending)).decode()
        except UnicodeDecodeError:
            return ending
        tokens = tuple(self._vocab.encode(text))
        return tokens if len(tokens) < len(ending) and self.ends(matcher, tokens) else ending


class _State:
    """A text on its way to an end. Each of the ``recent`` kinds of bytes makes the next one of its
    kind cost more, so that nothing is repeated for ever."""

    __slots__ = ("cost", "matcher", "recent", "tokens")

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        tokens: tuple[int, ...],
        cost: int,
        recent: tuple[int, ...],
    ) -> None:
        self.matcher = matcher
        self.tokens = tokens
        self.cost = cost
        self.recent = recent

    def after(self, token: ByteToken, cost: int) -> _State | None:
        matcher = self.matcher.deep_copy()
        if not matcher.consume_token(token.token_id):
            return None
        recent = (*self.recent[1 - RECENT_KINDS :], _KINDS[token.byte])
        return _State(matcher, (*self.tokens, token.token_id), cost, recent)


def _best(branches: list[tuple[int, int, _State, ByteToken]], width: int) -> list[_State]:
    beam: list[_State] = []
    for cost, _, state, token in branches:
        after = state.after(token, cost)
        if after is not None:
            beam.append(after)
        if len(beam) == width:
            break
    return beam


def _kinds() -> list[int]:
    """By byte: alike are lower-case letters, upper-case letters, digits, white space, bytes of what
    is no ASCII; every other byte is a kind of its own."""
    kinds = []
    for byte in range(256):
        char = chr(byte)
        if byte >= 0x80:
            kinds.append(0x80)
        elif char.isspace():
            kinds.append(ord(" "))
        elif char.isalpha():
            kinds.append(ord("a") if char.islower() else ord("A"))
        else:
            kinds.append(ord("0") if char.isdigit() else byte)
    return kinds


def _costs(*, is_wide: bool) -> list[int]:
    """By kind. Where few bytes are allowed brackets close something and quotes open; in the middle
    of a text a quote ends it and brackets are text."""
    costs = [3 if 0x20 < byte < 0x7F else 6 for byte in range(256)]
    for kinds, cost in (("aA0", 2), ("{[(<\\", 5), (" ", 9)):
        for char in kinds:
            costs[ord(char)] = cost
    for char in ")]}":
        costs[ord(char)] = 4 if is_wide else 0
    costs[QUOTE] = 0 if is_wide else 1
    return costs


_KINDS = _kinds()
_COSTS = _costs(is_wide=False)
_WIDE_COSTS = _costs(is_wide=True)
