# SPDX-License-Identifier: Apache-2.0
"""From input items to messages.

A model's turn arrives in pieces: what it thought, what it said, what it called. Pieces that follow
each other become one message, as the chat template saw them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from octavo.server.errors import shown
from octavo.types.errors import InvalidRequest

Message = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
TEXT_TYPES = ("input_text", "output_text", "text")


class Transcript:
    """Messages, and for each the path of the item that it came from (the first of several)."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.paths: list[str] = []
        self._is_open = False  # the last message is the model's, and may get more pieces

    def add_all(self, items: object) -> None:
        """Raises ``InvalidRequest`` naming the item."""
        if isinstance(items, str):
            self.add("input", {"role": "user", "content": items})
            return
        if not isinstance(items, list) or not items:
            raise InvalidRequest(
                f"input must be a string or a non-empty array of items, got {shown(items)}",
                param="input",
            )
        for i, item in enumerate(items):
            self._add_item(f"input[{i}]", item)

    def add(self, path: str, message: Message) -> None:
        """A message of its own."""
        self.messages.append(message)
        self.paths.append(path)
        self._is_open = False

    def _add_item(self, path: str, item: object) -> None:
        what = "must be a message, a function_call, its output or a reasoning item"
        if not isinstance(item, dict):
            raise _wrong(path, what, item)
        match item:
            case {"type": "function_call", "call_id": str(id_), "name": str(name)}:
                text = item.get("arguments")
                if not isinstance(text, str):
                    raise _wrong(f"{path}.arguments", "must be a string of JSON", text)
                function = {"name": name, "arguments": text}
                calls = self._assistant(path).setdefault("tool_calls", [])
                calls.append({"id": id_, "type": "function", "function": function})
            case {"type": "function_call_output", "call_id": str(id_)}:
                content = _texts(f"{path}.output", item.get("output"))
                self.add(path, {"role": "tool", "tool_call_id": id_, "content": content})
            case {"type": "reasoning"}:
                self._add_reasoning(path, item)
            case {"type": "item_reference"}:
                message = f"{path}: nothing is stored here; send the item itself"
                raise InvalidRequest(message, param=f"{path}.type")
            case {"role": str(role)} if item.get("type", "message") == "message":
                self._add_message(path, role, item.get("content"))
            case {"type": str(kind)} if kind not in ("message", *_OTHERS):
                message = f"{path}: items of type {shown(kind)} are not supported"
                raise InvalidRequest(message, param=f"{path}.type")
            case _:
                raise _wrong(path, what + ", with all its fields", item)

    def _add_message(self, path: str, role: str, content: object) -> None:
        if role not in ROLES:
            raise _wrong(f"{path}.role", f"must be one of {', '.join(ROLES)}", role)
        text = _texts(f"{path}.content", content)
        if role == "assistant":
            self._assistant(path, unless_has=("content", "tool_calls"))["content"] = text
        else:
            self.add(path, {"role": role, "content": text})

    def _add_reasoning(self, path: str, item: dict[str, Any]) -> None:
        """Its own words if they are given, else the summary; neither is fine too."""
        name = "content" if item.get("content") else "summary"
        parts = item.get(name) or []
        if not isinstance(parts, list):
            raise _wrong(f"{path}.{name}", "must be an array of texts", parts)
        texts = [_text(f"{path}.{name}[{i}]", part) for i, part in enumerate(parts)]
        if texts:
            draft = self._assistant(path, unless_has=("content", "tool_calls"))
            draft["reasoning_content"] = "".join([draft.get("reasoning_content", ""), *texts])

    def _assistant(self, path: str, *, unless_has: Iterable[str] = ()) -> Message:
        """The model's message that grows, or a new one if it has got that far already."""
        is_fit = self._is_open and not any(name in self.messages[-1] for name in unless_has)
        if not is_fit:
            self.add(path, {"role": "assistant"})
            self._is_open = True
        return self.messages[-1]


_OTHERS = ("function_call", "function_call_output")


def _texts(path: str, content: object) -> str:
    match content:
        case str():
            return content
        case list():
            return "\n".join(_text(f"{path}[{i}]", part) for i, part in enumerate(content))
    raise _wrong(path, "must be a string or an array of text parts", content)


def _text(path: str, part: object) -> str:
    match part:
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": "reasoning_text" | "summary_text", "text": str(text)}:
            return text
        case {"type": str(kind), "text": str(text)} if kind in TEXT_TYPES:
            return text
        case {"type": str(kind)} if kind not in (*TEXT_TYPES, "refusal"):
            message = f"{path}: only text is supported, got type {shown(kind)}"
            raise InvalidRequest(message, param=f"{path}.type")
    raise _wrong(path, 'must be {"type": "input_text", "text": "..."}', part)


def _wrong(path: str, what: str, value: object) -> InvalidRequest:
    return InvalidRequest(f"{path} {what}, got {shown(value)}", param=path)
