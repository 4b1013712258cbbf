# SPDX-License-Identifier: Apache-2.0
"""The parsers that find nothing, or leave something out."""

from __future__ import annotations

from octavo.chat.parts import AnswerParser, Content, Part


class PlainParser:
    """Text is the answer."""

    def feed(self, text: str) -> list[Part]:
        return [Content(text)] if text else []

    def finish(self) -> list[Part]:
        return []


class FirstCallOnly:
    """``AnswerParser`` for those who asked for at most one call: further ones are left out."""

    def __init__(self, answer: AnswerParser) -> None:
        self._answer = answer

    def feed(self, text: str) -> list[Part]:
        return _first_only(self._answer.feed(text))

    def finish(self) -> list[Part]:
        return _first_only(self._answer.finish())


def _first_only(parts: list[Part]) -> list[Part]:
    return [part for part in parts if getattr(part, "index", 0) == 0]
