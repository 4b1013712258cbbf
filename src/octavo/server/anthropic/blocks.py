# SPDX-License-Identifier: Apache-2.0
"""From content blocks to messages.

A tool's result is a block of a user's message here, and a message of its own in chat; so one
message may become several. What the model thought goes back to its template, if it is not secret.
"""

from __future__ import annotations

import json
from typing import Any

from octavo.server.anthropic.schemas import InputMessage
from octavo.server.errors import shown
from octavo.types.errors import InvalidRequest

Message = dict[str, Any]

IMAGES = ("image", "document")
SILENT = ("redacted_thinking",)


class Transcript:
    """Messages, and for each the path of what it came from."""

    def __init__(self, system: object, messages: list[InputMessage]) -> None:
        """Raises ``InvalidRequest`` naming the block."""
        self.messages: list[Message] = []
        self.paths: list[str] = []
        if system is not None:
            self._add("system", {"role": "system", "content": texts("system", system)})
        for i, message in enumerate(messages):
            path = f"messages[{i}]"
            if message.role == "assistant":
                self._add(path, _assistant(f"{path}.content", message.content))
            elif isinstance(message.content, list) and message.role == "user":
                self._add_user(path, message.content)
            else:
                content = texts(f"{path}.content", message.content)
                self._add(path, {"role": message.role, "content": content})

    @property
    def is_begun(self) -> bool:
        """The last message is the model's own: the answer goes on from there."""
        return bool(self.messages) and self.messages[-1]["role"] == "assistant"

    def _add(self, path: str, message: Message) -> None:
        self.messages.append(message)
        self.paths.append(path)

    def _add_user(self, path: str, blocks: list[object]) -> None:
        """Results become messages of the tool, what is between them stays the user's."""
        said: list[str] = []
        for i, block in enumerate(blocks):
            where = f"{path}.content[{i}]"
            if not (isinstance(block, dict) and block.get("type") == "tool_result"):
                said.append(_text(where, block))
                continue
            if said:
                self._add(path, {"role": "user", "content": "\n".join(said)})
                said = []
            self._add(where, _result(where, block))
        if said or not blocks:
            self._add(path, {"role": "user", "content": "\n".join(said)})


def _result(path: str, block: dict[str, Any]) -> Message:
    id_ = block.get("tool_use_id")
    if not isinstance(id_, str) or not id_:
        message = f"{path}.tool_use_id must be a non-empty string, got {shown(id_)}"
        raise InvalidRequest(message, param=f"{path}.tool_use_id")
    content = texts(f"{path}.content", block.get("content", ""))
    return {"role": "tool", "tool_call_id": id_, "content": content}


def _assistant(path: str, content: object) -> Message:
    if not isinstance(content, list):
        return {"role": "assistant", "content": texts(path, content)}
    said: list[str] = []
    thought: list[str] = []
    calls: list[Message] = []
    for i, block in enumerate(content):
        match block:
            case {"type": "tool_use", "id": str(id_), "name": str(name), "input": dict(given)}:
                arguments = json.dumps(given, ensure_ascii=False)
                function = {"name": name, "arguments": arguments}
                calls.append({"id": id_, "type": "function", "function": function})
            case {"type": "thinking", "thinking": str(text)}:
                thought.append(text)
            case {"type": str(kind)} if kind in SILENT:
                pass
            case _:
                said.append(_text(f"{path}[{i}]", block))
    message: Message = {"role": "assistant"}
    if said or not calls:
        message["content"] = "".join(said)
    if thought:
        message["reasoning_content"] = "".join(thought)
    if calls:
        message["tool_calls"] = calls
    return message


def texts(path: str, content: object) -> str:
    """The text of a string or of text blocks, which stand on lines of their own."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(_text(f"{path}[{i}]", block) for i, block in enumerate(content))
    message = f"{path} must be a string or an array of blocks, got {shown(content)}"
    raise InvalidRequest(message, param=path)


def _text(path: str, block: object) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)} if kind in IMAGES:
            message = f"{path}: this model reads only text, got a block of type {shown(kind)}"
            raise InvalidRequest(message, param=f"{path}.type")
        case {"type": str(kind)} if kind != "text":
            message = f"{path}: a block of type {shown(kind)} is not supported here"
            message += ", or lacks a field"
            raise InvalidRequest(message, param=f"{path}.type")
    message = f'{path} must be {{"type": "text", "text": "..."}}, got {shown(block)}'
    raise InvalidRequest(message, param=path)
