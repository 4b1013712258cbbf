# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE (GPT-2 and most models since): bytes, written as printable characters, merged by
an ordered list of pairs. The merging is the ``tokenizers`` library's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from octavo.tokenizer.pre_tokenizers import PreTokenizer
from octavo.types.errors import InvalidRequest

REPLACEMENT = "\ufffd"


def _byte_characters() -> list[str]:
    """The character that byte b is written as. Printable Latin-1 bytes are themselves; the other 68
    take U+0100, U+0101 and so on in turn, so that no vocabulary text holds a space or a control.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (chr(code) for code in range(0x100, 0x200))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


BYTE_TO_CHAR = _byte_characters()
CHAR_TO_BYTE = {char: bytes([byte]) for byte, char in enumerate(BYTE_TO_CHAR)}


class ByteLevelCodec:
    """Merges bytes by rank. Safe for many threads, as the library is.

    Some vocabularies lack bytes (SmolLM2's: 0x04, 0xF1 and others), which the library would drop
    from the text without a word. Here a character that needs one becomes U+FFFD, so that the
    model sees that something was there.

    Raises ``ValueError`` when a merge speaks of a token that is not in ``vocab``.
    """

    has_space_prefix = False

    def __init__(
        self, vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], rule: PreTokenizer
    ) -> None:
        self._missing = bytes(b for b, char in enumerate(BYTE_TO_CHAR) if char not in vocab)
        self._tokenizer = _build(vocab, merges, rule)

    def encode(self, fragment: str, *, after_literal: bool) -> list[int]:
        # The batch call releases the GIL, the single one does not: 900 kB would stop the event loop
        # and the scheduler for 0.7 s.
        (encoding,) = self._tokenizer.encode_batch_fast(
            [self._representable(fragment)], add_special_tokens=False
        )
        ids: list[int] = encoding.ids
        return ids

    def normal_bytes(self, text: str) -> bytes:
        return b"".join(
            CHAR_TO_BYTE.get(char) or char.encode("utf-8", "surrogateescape") for char in text
        )

    def _representable(self, fragment: str) -> str:
        if not self._lacks(fragment):
            return fragment
        if self._lacks(REPLACEMENT):
            raise InvalidRequest("text holds a character that this model's vocabulary cannot say")
        return "".join(REPLACEMENT if self._lacks(char) else char for char in fragment)

    def _lacks(self, text: str) -> bool:
        data = text.encode("utf-8")
        return bool(self._missing) and len(data.translate(None, self._missing)) != len(data)


def _build(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], rule: PreTokenizer
) -> Tokenizer:
    try:
        model = models.BPE(dict(vocab), list(merges), ignore_merges=rule.whole_words)
    except Exception as error:  # the library raises plain Exception
        raise ValueError(str(error)) from error
    tokenizer = Tokenizer(model)
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, to_bytes])
    return tokenizer
