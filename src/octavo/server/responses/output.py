# SPDX-License-Identifier: Apache-2.0
"""The items that a response consists of, each with the events of its own life.

What was said, what was thought and what is called differ in their documents and in the names of
their events, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from octavo.server.reply import Event

JsonDict = dict[str, Any]


class Item(Protocol):
    """``place`` is where the item is: the fields that all of its events carry."""

    place: JsonDict

    def document(self, status: str) -> JsonDict: ...

    def opening(self) -> list[Event]: ...

    def closing(self, status: str) -> list[Event]: ...


class MessageItem:
    """What the model says."""

    def __init__(self, id_: str, output_index: int) -> None:
        self.place: JsonDict = {"item_id": id_, "output_index": output_index, "content_index": 0}
        self._texts: list[str] = []
        self._logprobs: list[JsonDict] = []

    def document(self, status: str) -> JsonDict:
        content = [] if status == "in_progress" else [self._part()]
        head = {"id": self.place["item_id"], "type": "message", "role": "assistant"}
        return {**head, "status": status, "content": content}

    def opening(self) -> list[Event]:
        return [{"type": "response.content_part.added", **self.place, "part": self._part()}]

    def add(self, text: str, logprobs: Sequence[JsonDict]) -> Event:
        self._texts.append(text)
        self._logprobs += logprobs
        kind = "response.output_text.delta"
        return {"type": kind, **self.place, "delta": text, "logprobs": _without_bytes(logprobs)}

    def closing(self, status: str) -> list[Event]:
        part = self._part()
        done = {"text": part["text"], "logprobs": _without_bytes(self._logprobs)}
        return [
            {"type": "response.output_text.done", **self.place, **done},
            {"type": "response.content_part.done", **self.place, "part": part},
        ]

    def _part(self) -> JsonDict:
        text, logprobs = "".join(self._texts), list(self._logprobs)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


class ReasoningItem:
    """What the model says to itself, in its own words: there is no summary."""

    def __init__(self, id_: str, output_index: int) -> None:
        self.place: JsonDict = {"item_id": id_, "output_index": output_index, "content_index": 0}
        self._texts: list[str] = []

    def document(self, status: str) -> JsonDict:
        content = [] if status == "in_progress" else [self._part()]
        head = {"id": self.place["item_id"], "type": "reasoning"}
        return {**head, "summary": [], "content": content, "status": status}

    def opening(self) -> list[Event]:
        return [{"type": "response.content_part.added", **self.place, "part": self._part()}]

    def add(self, text: str) -> Event:
        self._texts.append(text)
        return {"type": "response.reasoning_text.delta", **self.place, "delta": text}

    def closing(self, status: str) -> list[Event]:
        part = self._part()
        return [
            {"type": "response.reasoning_text.done", **self.place, "text": part["text"]},
            {"type": "response.content_part.done", **self.place, "part": part},
        ]

    def _part(self) -> JsonDict:
        return {"type": "reasoning_text", "text": "".join(self._texts)}


class CallItem:
    """A tool that the model wants called."""

    def __init__(self, id_: str, output_index: int, *, call_id: str, name: str) -> None:
        self.place: JsonDict = {"item_id": id_, "output_index": output_index}
        self._call_id = call_id
        self._name = name
        self._texts: list[str] = []

    def document(self, status: str) -> JsonDict:
        head = {"id": self.place["item_id"], "type": "function_call", "call_id": self._call_id}
        return {**head, "name": self._name, "arguments": "".join(self._texts), "status": status}

    def opening(self) -> list[Event]:
        return []

    def add(self, text: str) -> Event:
        self._texts.append(text)
        return {"type": "response.function_call_arguments.delta", **self.place, "delta": text}

    def closing(self, status: str) -> list[Event]:
        kind = "response.function_call_arguments.done"
        done = {"name": self._name, "arguments": "".join(self._texts)}
        return [{"type": kind, **self.place, **done}]


def _without_bytes(logprobs: Sequence[JsonDict]) -> list[JsonDict]:
    """Deltas give tokens as text alone; the part's document has their bytes too."""
    return [
        {**_short(entry), "top_logprobs": [_short(top) for top in entry["top_logprobs"]]}
        for entry in logprobs
    ]


def _short(entry: JsonDict) -> JsonDict:
    return {"token": entry["token"], "logprob": entry["logprob"]}
