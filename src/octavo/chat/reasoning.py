# SPDX-License-Identifier: Apache-2.0
"""What a model thinks before it answers, told apart by its tags."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.chat.parts import AnswerParser, Part, Reasoning
from octavo.chat.tags import SPACE_MAX, before_tag, overlap


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """``always``: the answer begins inside, whether or not its opening tag is seen."""

    start: str
    end: str
    always: bool = False


class ReasoningParser:
    """``AnswerParser``: reasoning up to its closing tag; ``answer`` reads the rest.

    Only the beginning of an answer can be reasoning: later tags are text, for an answer may be
    about them. White space around the tags belongs to them and is dropped. An answer that ends
    inside was all reasoning.
    """

    def __init__(self, tags: ReasoningTags, answer: AnswerParser, *, starts_inside: bool) -> None:
        self._tags = tags
        self._answer = answer
        self._buffer = ""
        self._starts_inside = starts_inside
        self._state = self._before

    def feed(self, text: str) -> list[Part]:
        self._buffer += text
        return self._state()

    def finish(self) -> list[Part]:
        rest, self._buffer = self._buffer, ""
        if self._state in (self._before, self._inside) and self._starts_inside:
            return [Reasoning(rest)] if rest.strip() else []
        return [*self._answer.feed(rest), *self._answer.finish()]

    def _before(self) -> list[Part]:
        """The opening tag may come, even where the prompt had it already."""
        rest = self._buffer.lstrip()
        is_near = len(self._buffer) - len(rest) <= SPACE_MAX
        if is_near and rest.startswith(self._tags.start):
            self._buffer = rest[len(self._tags.start) :]
            self._starts_inside = True
            return self._to_reasoning()
        if is_near and self._tags.start.startswith(rest):
            return []
        return self._to_reasoning() if self._starts_inside else self._pass_on()

    def _to_reasoning(self) -> list[Part]:
        self._state = self._skip_space
        return self._skip_space()

    def _skip_space(self) -> list[Part]:
        self._buffer = self._buffer.lstrip()
        if not self._buffer:
            return []
        self._state = self._inside
        return self._inside()

    def _inside(self) -> list[Part]:
        thought, found, rest = self._buffer.partition(self._tags.end)
        if not found:
            thought = thought[: len(thought) - overlap(thought, self._tags.end)]
        thought = before_tag(thought)
        parts: list[Part] = [Reasoning(thought)] if thought else []
        if not found:
            self._buffer = self._buffer[len(thought) :]
            return parts
        self._buffer = rest
        self._state = self._after
        return parts + self._after()

    def _after(self) -> list[Part]:
        self._buffer = self._buffer.lstrip()
        return self._pass_on() if self._buffer else []

    def _pass_on(self) -> list[Part]:
        self._state = self._pass_on
        rest, self._buffer = self._buffer, ""
        return self._answer.feed(rest)
