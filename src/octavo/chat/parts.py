# SPDX-License-Identifier: Apache-2.0
"""What the text of a chat answer consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer proper."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model says to itself before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call begins. ``index`` counts the calls of one answer; ``call_id`` is unique."""

    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """A piece of the JSON text of a call's arguments."""

    index: int
    text: str


Part = Content | Reasoning | ToolCall | ToolArguments


class AnswerParser(Protocol):
    """Splits the text of one sample as it comes. Keeps state; one per sample.

    However a text is cut into calls of ``feed``, the parts joined are the same. Only what could
    still become a tag is held back. Text that looks like a call and is none becomes ``Content``:
    nothing is lost and nothing raises.
    """

    def feed(self, text: str) -> list[Part]: ...

    def finish(self) -> list[Part]:
        """No more text will come: whatever was held back."""
