# SPDX-License-Identifier: Apache-2.0
"""A message as it grows: its content blocks one after the other, and the events that tell of them.

message_start and ping; then for each block: start, deltas, stop; at last message_delta, which says
why it ended and what it cost, and message_stop. Or an error.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from octavo.chat.call_tally import CallTally
from octavo.chat.parts import Content, Part, Reasoning, ToolArguments, ToolCall
from octavo.server.anthropic import errors
from octavo.server.errors import ApiError
from octavo.server.reply import Ending, Event, Piece, Usage

JsonDict = dict[str, Any]

# An escape in JSON text: a pair of surrogates, a single one, or the beginning of any other.
ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\."
)

# By kind of block: the field that grows, and the delta that makes it grow.
GROWING = {
    "text": ("text", "text_delta"),
    "thinking": ("thinking", "thinking_delta"),
    "tool_use": ("partial_json", "input_json_delta"),
}


@dataclass(slots=True)
class Block:
    """``start`` is the block as it begins."""

    start: JsonDict
    texts: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return str(self.start["type"])

    def delta(self, text: str) -> JsonDict:
        name, kind = GROWING[self.kind]
        return {"type": kind, name: text}

    def document(self) -> JsonDict:
        text = "".join(self.texts)
        if self.kind == "tool_use":
            return {**self.start, "input": _parsed(text)}
        return {**self.start, GROWING[self.kind][0]: text}


class MessageWriter:
    """A ``reply.Writer``."""

    def __init__(self, id_: str, model: str) -> None:
        self._document: JsonDict = {
            "id": id_,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        self._blocks: list[Block] = []
        self._is_open = False  # the last block may grow
        self._tally = CallTally()

    def begin(self, usage: Usage) -> Iterable[Event]:
        message = {**self._document, "usage": _usage(usage)}
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def add(self, piece: Piece) -> Iterable[Event]:
        self._tally.add(piece.parts)
        return [event for part in piece.parts for event in self._add_part(part)]

    def end(self, ending: Ending) -> Iterable[Event]:
        events: list[Event] = []
        if not self._blocks:  # a client may count on something to read
            events += self._open({"type": "text", "text": ""})
        events += self._close()
        reason = self._stop_reason(ending)
        sequence = ending.stop_reason if reason == "stop_sequence" else None
        end = {"stop_reason": reason, "stop_sequence": sequence}
        usage = _usage(ending.usage)
        content = [block.document() for block in self._blocks]
        self._document |= {"content": content, **end, "usage": usage}
        events += [
            {"type": "message_delta", "delta": end, "usage": usage},
            {"type": "message_stop"},
        ]
        return events

    def fail(self, error: ApiError) -> Iterable[Event]:
        return [errors.document(error)]

    def whole(self) -> JsonDict:
        return self._document

    def _add_part(self, part: Part) -> Iterator[Event]:
        match part:
            case Content(text):
                yield from self._grow("text", text, {"type": "text", "text": ""})
            case Reasoning(text):
                start = {"type": "thinking", "thinking": "", "signature": ""}
                yield from self._grow("thinking", text, start)
            case ToolCall(call_id=id_, name=name):
                yield from self._open({"type": "tool_use", "id": id_, "name": name, "input": {}})
            case ToolArguments(text=text):
                yield from self._grow("tool_use", text, None)

    def _grow(self, kind: str, text: str, start: JsonDict | None) -> Iterator[Event]:
        if not self._is_open or self._blocks[-1].kind != kind:
            if start is None:
                return
            yield from self._open(start)
        block = self._blocks[-1]
        block.texts.append(text)
        index = len(self._blocks) - 1
        yield {"type": "content_block_delta", "index": index, "delta": block.delta(text)}

    def _open(self, start: JsonDict) -> Iterator[Event]:
        yield from self._close()
        self._blocks.append(Block(start))
        self._is_open = True
        index = len(self._blocks) - 1
        yield {"type": "content_block_start", "index": index, "content_block": start}

    def _close(self) -> Iterator[Event]:
        if self._is_open:
            self._is_open = False
            yield {"type": "content_block_stop", "index": len(self._blocks) - 1}

    def _stop_reason(self, ending: Ending) -> str:
        if ending.finish_reason == "length":
            return "max_tokens"
        if self._tally.is_for_tools:
            return "tool_use"
        return "stop_sequence" if isinstance(ending.stop_reason, str) else "end_turn"


def _parsed(text: str) -> JsonDict:
    """The arguments as far as they go: an answer that was cut off may end in the middle."""
    try:
        value = from_json(ESCAPE.sub(_whole_character, text), allow_partial=True)
    except ValueError:
        return {}
    return _finite(value) if isinstance(value, dict) else {}


def _whole_character(match: re.Match[str]) -> str:
    """JSON may spell half a character; nothing that is encoded can carry it."""
    escape = match.group()
    return "\\ufffd" if len(escape) == len("\\ud800") else escape


def _finite(value: Any) -> Any:
    """The value without numbers like 1e999, which are JSON and which no float can give back."""
    match value:
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if math.isnan(value):
            return None
        case float() if math.isinf(value):
            return math.copysign(sys.float_info.max, value)
    return value


def _usage(usage: Usage) -> JsonDict:
    """Their three kinds of input add up: what was found in the cache is not among the first."""
    return {
        "input_tokens": usage.num_input - usage.num_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.num_cached,
        "output_tokens": usage.num_output,
    }
