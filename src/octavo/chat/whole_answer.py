# SPDX-License-Identifier: Apache-2.0
"""The parts of an answer, joined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from octavo.chat.parts import Content, Part, Reasoning, ToolArguments, ToolCall


@dataclass(frozen=True, slots=True)
class WholeCall:
    """``arguments`` is JSON text, unless the answer ended in its midst."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    content: str
    reasoning: str
    calls: tuple[WholeCall, ...]


def joined(parts: Iterable[Part]) -> WholeAnswer:
    """What a client gets who does not stream."""
    content: list[str] = []
    reasoning: list[str] = []
    heads: dict[int, ToolCall] = {}
    arguments: dict[int, list[str]] = {}
    for part in parts:
        match part:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case ToolCall(index):
                heads[index] = part
            case ToolArguments(index, text):
                arguments.setdefault(index, []).append(text)
    calls = [
        WholeCall(head.call_id, head.name, "".join(arguments.get(index, ())))
        for index, head in sorted(heads.items())
    ]
    return WholeAnswer("".join(content), "".join(reasoning), tuple(calls))
