# SPDX-License-Identifier: Apache-2.0
"""Tools for models whose chat template knows none: everything is told in plain messages.

What can be called goes into the system message, a call becomes the text that a model would write
for it, and a result is a message of the user's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from octavo.chat.tools import Tool, ToolChoice

Message = dict[str, object]

_TOOLS = "You can call these functions. Each line describes one, its parameters as a JSON Schema:"
_AUTO = """\
To call a function, write its name and its arguments like this, and nothing after it:
<tool_call>
{"name": "function_name", "arguments": {"parameter": "value"}}
</tool_call>
You will be given the result between <tool_response> and </tool_response>. If no function helps, \
answer in plain words."""
_REQUIRED = """\
Answer with a JSON array of the calls to make, and nothing else:
[{"name": "function_name", "arguments": {"parameter": "value"}}]"""
_NAMED = "Answer with the arguments for {name} as a JSON object, and nothing else."


def told(
    messages: Sequence[Message], tools: Sequence[Tool], choice: ToolChoice, *, role: str = "system"
) -> list[Message]:
    """The conversation with all that is about tools written out. Contents must be text. ``role``:
    who describes the tools, in the first message or in one before it.
    """
    plain: list[Message] = []
    for message in messages:
        previous = plain[-1] if plain else None
        if message.get("role") == "tool":
            result = f"<tool_response>\n{message.get('content') or ''}\n</tool_response>"
            if previous is not None and previous.get("told"):
                previous["content"] = f"{previous['content']}\n{result}"
            else:
                plain.append({"role": "user", "content": result, "told": True})
        else:
            plain.append(_with_calls(message))
    for message in plain:
        message.pop("told", None)
    return _with_first(plain, role, _instructions(tools, choice)) if tools else plain


def _instructions(tools: Sequence[Tool], choice: ToolChoice) -> str:
    lines = [json.dumps(tool.described()["function"], ensure_ascii=False) for tool in tools]
    how = _AUTO
    if choice.is_forced:
        how = _REQUIRED if choice.name is None else _NAMED.format(name=choice.name)
    return "\n".join([_TOOLS, *lines]) + f"\n\n{how}"


def _with_first(messages: list[Message], role: str, text: str) -> list[Message]:
    if not messages or messages[0].get("role") != role:
        return [{"role": role, "content": text}, *messages]
    first, *rest = messages
    words = str(first.get("content") or "")
    both = (words, text) if role == "system" else (text, words)
    return [{**first, "content": "\n\n".join(filter(None, both))}, *rest]


def _with_calls(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return dict(message)
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    text = "\n".join([str(message.get("content") or ""), *map(_call_text, calls)])
    return {**rest, "content": text.lstrip("\n")}


def _call_text(call: Mapping[str, object]) -> str:
    function = call.get("function")
    shown = function if isinstance(function, dict) else {}
    body = {"name": shown.get("name"), "arguments": shown.get("arguments")}
    return f"<tool_call>\n{json.dumps(body, ensure_ascii=False)}\n</tool_call>"
