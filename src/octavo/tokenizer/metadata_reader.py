# SPDX-License-Identifier: Apache-2.0
"""Checked access to the ``tokenizer.ggml.*`` keys of a checkpoint."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

from octavo.tokenizer.base import TokenKind
from octavo.types.errors import BadCheckpoint, UnsupportedModel

PREFIX = "tokenizer.ggml."
MESSAGE_CHARS_MAX = 500  # the list of known pre-tokenizers takes 300


@runtime_checkable
class DecodesStrings(Protocol):
    """Metadata that decodes lazily and bounds what a hostile array of strings may cost."""

    def get_strings(self, key: str) -> list[str]: ...


class MetadataReader:
    """Getters for plain Python values. What is missing, of a wrong type, of a wrong length or out
    of range raises ``BadCheckpoint``: "<file>: <key>: got ..., wanted ...". The name of the file is
    the mapping's ``source``, if it has one.
    """

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        source = getattr(metadata, "source", None)
        self._source = source if isinstance(source, str) else "checkpoint"

    def bad(self, name: str, message: str) -> BadCheckpoint:
        return BadCheckpoint(self._one_line(name, message))

    def unsupported(self, name: str, message: str) -> UnsupportedModel:
        return UnsupportedModel(self._one_line(name, message))

    def text(self, name: str) -> str:
        value = self.optional_text(PREFIX + name)
        if value is None:
            raise self.bad(name, "got no such key, wanted a string")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, str):
            raise self.bad(key, f"got {type(value).__name__}, wanted a string")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._metadata.get(PREFIX + name, default)
        if not isinstance(value, bool):
            raise self.bad(name, f"got {type(value).__name__}, wanted a bool")
        return value

    def adds(self, name: str, token_id: int | None, *, default: bool) -> bool:
        """Whether encoding adds BOS or EOS; to ask for a token that is not named is an error."""
        flag = self.flag(f"add_{name}_token", default=default and token_id is not None)
        if flag and token_id is None:
            raise self.bad(f"{name}_token_id", f"got no such key, but add_{name}_token is set")
        return flag

    def token_id(self, name: str, vocab_size: int) -> int | None:
        value = self._metadata.get(PREFIX + name)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < vocab_size:
            raise self.bad(name, f"got {value!r:.60}, wanted a token id in [0, {vocab_size})")
        return value

    def texts(self, name: str) -> Sequence[str]:
        values = self._strings(name)
        if not values:
            raise self.bad(name, "got an empty array, wanted one text per token")
        return values

    def kinds(self, length: int) -> Sequence[int]:
        values = cast("Sequence[int]", self._array("token_type", int, length))
        wrong = set(values) - set(map(int, TokenKind))
        if wrong:
            low, high = min(TokenKind), max(TokenKind)
            raise self.bad("token_type", f"got {min(wrong)}, wanted integers in [{low}, {high}]")
        return values

    def scores(self, length: int) -> Sequence[float]:
        values = cast("Sequence[float]", self._array("scores", float, length))
        if not all(map(math.isfinite, values)):
            raise self.bad("scores", "got infinity or NaN, wanted finite floats")
        return values

    def merges(self) -> list[tuple[str, str]]:
        """Each merge is two token texts with one space between them."""
        merges: list[tuple[str, str]] = []
        for line in self._strings("merges"):
            left, _, right = line.partition(" ")
            if not left or not right:
                raise self.bad(f"merges[{len(merges)}]", f"got {line!r:.60}, wanted a pair")
            merges.append((left, right))
        return merges

    def _one_line(self, name: str, message: str) -> str:
        """Printable and bounded, whatever a hostile file put into it."""
        key = name if name.startswith("tokenizer.") else PREFIX + name
        line = f"{self._source}: {key}: {message[:MESSAGE_CHARS_MAX]}"
        return line if line.isprintable() else ascii(line)[1:-1]

    def _strings(self, name: str) -> Sequence[str]:
        if isinstance(self._metadata, DecodesStrings):
            return self._metadata.get_strings(PREFIX + name)
        return cast("Sequence[str]", self._array(name, str))

    def _array(self, name: str, kind: type, length: int | None = None) -> Sequence[object]:
        wanted = f"an array of {kind.__name__}"
        value = self._metadata.get(PREFIX + name)
        if value is None:
            raise self.bad(name, f"got no such key, wanted {wanted}")
        if not isinstance(value, list | tuple | array):
            raise self.bad(name, f"got {type(value).__name__}, wanted {wanted}")
        wrong = set(map(type, value)) - {kind}
        if wrong:
            names = ", ".join(sorted(t.__name__ for t in wrong))
            raise self.bad(name, f"got {names} among its elements, wanted {wanted}")
        if length is not None and len(value) != length:
            raise self.bad(name, f"got {len(value)} elements, wanted {length}, one per token")
        return value
