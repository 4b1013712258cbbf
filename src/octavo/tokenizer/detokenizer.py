# SPDX-License-Identifier: Apache-2.0
"""Text from a growing list of tokens: each character is shown once, as soon as it is certain.

    bytes of the tokens --UTF-8--> characters --stop strings--> text that may be shown
                         ^ holds an incomplete             ^ holds what may yet become
                           code point                        a stop string, no more

Streaming and not streaming both read from here, so they cannot differ.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence
from typing import NamedTuple

from octavo.types.ports import Tokenizer


class Detokenizer:
    """The text of one sequence. Not safe for two threads; cheap, one per sequence.

    The ids continue a text: a leading space is kept. The final text is the decoding of the bytes of
    all ids, cut at the first stop string: the one that *ends* first wins, of several that end at
    the same character the longest. So the result does not depend on how tokens cut the text.

    ``keep_special_ids``: control tokens that stay in the text although the others are skipped.

    A stop string counts once ``min_tokens`` tokens have been appended; one that is complete before
    is ordinary text. ``append`` costs O(1) amortised per character and stop string.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        keep_special_ids: Collection[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._keep_special_ids = frozenset(keep_special_ids)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._stops = [StopString(text) for text in stop]
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._num_tokens = 0
        self._held = ""  # characters that are certain, and may begin a stop string
        self._text = ""
        self._unread: list[str] = []  # shown parts that are not in _text yet
        self._untaken: list[str] = []  # shown parts that take() has not given away
        self._finished = False
        self._stop_reason: str | None = None

    @property
    def text(self) -> str:
        """All text that may be shown so far; later values only ever add to it.

        Costs O(len(text)) after a change: a stream reads ``take`` instead.
        """
        if self._unread:
            self._text += "".join(self._unread)
            self._unread.clear()
        return self._text

    @property
    def stop_reason(self) -> str | None:
        """The stop string that ended the text."""
        return self._stop_reason

    def append(self, token_id: int) -> str | None:
        """Add a token. Returns the stop string that it completes, if any; the text is then final
        and further tokens change nothing.
        """
        if self._finished:
            return self._stop_reason
        self._num_tokens += 1
        if self._skips(token_id):
            return None
        return self._feed(self._decode(self._tokenizer.token_bytes(token_id)))

    def take(self) -> str:
        """The text that became showable since the last call: the delta of a stream."""
        new = "".join(self._untaken)
        self._untaken.clear()
        return new

    def finish(self) -> str | None:
        """The sequence has ended: release what is held. Half a code point becomes U+FFFD.

        Idempotent. Returns the stop string that ended the text, if any.
        """
        if not self._finished:
            self._feed(self._decode(b"", True))
            self._finish(self._held)
        return self._stop_reason

    def _skips(self, token_id: int) -> bool:
        if not self._skip_special_tokens or token_id in self._keep_special_ids:
            return False
        return self._tokenizer.is_special(token_id)

    def _feed(self, chars: str) -> str | None:
        if not chars:
            return None
        if not self._stops:
            self._show(chars)
            return None
        held = self._held + chars
        found = self._first_stop(chars) if self._num_tokens >= self._min_tokens else None
        if found is not None:
            end = len(self._held) + found.end
            start = end - len(found.text)
            self._stop_reason = found.text
            self._finish(held[: end if self._include_stop else start])
            return found.text
        if self._num_tokens < self._min_tokens:
            for stop in self._stops:
                stop.skip(chars)
        keep = max(stop.num_matched for stop in self._stops)
        self._show(held[: len(held) - keep])
        self._held = held[len(held) - keep :]
        return None

    def _first_stop(self, chars: str) -> StopMatch | None:
        found = [match for stop in self._stops if (match := stop.find(chars)) is not None]
        return min(found, key=lambda match: (match.end, -len(match.text)), default=None)

    def _finish(self, rest: str) -> None:
        self._show(rest)
        self._held = ""
        self._finished = True

    def _show(self, chars: str) -> None:
        if chars:
            self._unread.append(chars)
            self._untaken.append(chars)


class StopMatch(NamedTuple):
    """A stop string and where it ends in the characters just given (end exclusive)."""

    end: int
    text: str


class StopString:
    """One stop string sought in a text that comes in parts (Knuth, Morris and Pratt).

    ``num_matched``: the length of the longest end of the text so far that begins the stop string.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.num_matched = 0
        self._fallback = _borders(text)

    def find(self, chars: str) -> StopMatch | None:
        """Read on until the stop string is complete; what follows it in ``chars`` is not read."""
        at = 0
        while at < len(chars):
            if self.num_matched == 0:  # the usual case: one search at the speed of C
                at = chars.find(self.text[0], at)
                if at < 0:
                    return None
            self._step(chars[at])
            at += 1
            if self.num_matched == len(self.text):
                self.num_matched = self._fallback[-1]
                return StopMatch(at, self.text)
        return None

    def skip(self, chars: str) -> None:
        """Read ``chars`` and let complete stop strings pass."""
        while (match := self.find(chars)) is not None:
            chars = chars[match.end :]

    def _step(self, char: str) -> None:
        matched = self.num_matched
        while matched and self.text[matched] != char:
            matched = self._fallback[matched - 1]
        self.num_matched = matched + (self.text[matched] == char)


def _borders(text: str) -> list[int]:
    """Entry i: the length of the longest proper prefix of ``text[:i + 1]`` that also ends it."""
    borders = [0] * len(text)
    matched = 0
    for i in range(1, len(text)):
        while matched and text[i] != text[matched]:
            matched = borders[matched - 1]
        matched += text[i] == text[matched]
        borders[i] = matched
    return borders
