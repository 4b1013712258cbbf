# SPDX-License-Identifier: Apache-2.0
"""The body of a chat request as a ``Conversation``: messages and tools in the form of templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from octavo.chat.interpreter import Conversation
from octavo.chat.tools import Tool, ToolChoice, ToolMode, make_tool
from octavo.server.errors import shown
from octavo.server.openai.schemas import ChatMessage, ChatRequest
from octavo.types.errors import InvalidRequest

CALLS_MAX = 1024  # in one message of the history


def conversation(chat: ChatRequest) -> Conversation:
    """Raises ``InvalidRequest`` that names the field, ``messages[3].tool_calls[0].id``."""
    tools = [_tool(f"tools[{i}]", tool) for i, tool in enumerate(chat.tools or ())]
    continues = bool(chat.continue_final_message)
    adds_prompt = chat.add_generation_prompt
    return Conversation(
        messages=[_message(f"messages[{i}]", one) for i, one in enumerate(chat.messages)],
        tools=tools,
        choice=tool_choice(chat.tool_choice),
        parallel_calls=chat.parallel_tool_calls is not False,
        variables=chat.chat_template_kwargs or {},
        documents=chat.documents,
        # Continuing is itself the wish for no new turn.
        add_generation_prompt=not continues if adds_prompt is None else adds_prompt,
        continues=continues,
        reasoning_effort=chat.reasoning_effort,
    )


def tool_choice(value: object) -> ToolChoice:
    """``"auto"`` and the like, or an object with a function's name. None is "auto"."""
    match value:
        case None:
            return ToolChoice()
        case "none" | "auto" | "required":
            return ToolChoice(ToolMode(value))
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolChoice(ToolMode.REQUIRED, name)
    raise InvalidRequest(
        'tool_choice must be "none", "auto", "required" or'
        f' {{"type": "function", "function": {{"name": "..."}}}}, got {shown(value)}',
        param="tool_choice",
    )


def _tool(path: str, tool: Mapping[str, object]) -> Tool:
    if tool.get("type") != "function":
        message = f'{path}.type must be "function", got {shown(tool.get("type"))}'
        raise InvalidRequest(message, param=f"{path}.type")
    where, function = f"{path}.function", tool.get("function")
    if not isinstance(function, dict):
        raise InvalidRequest(f"{where} must be an object, got {shown(function)}", param=where)
    return make_tool(
        where, function.get("name"), function.get("description"), function.get("parameters")
    )


def _message(where: str, message: ChatMessage) -> dict[str, object]:
    """A message as templates know it; OpenAI's newer word for "system" is undone."""
    _refuse_others(where, message)
    rendered: dict[str, object] = {"role": _ROLES.get(message.role, message.role)}
    calls = _calls(where, message)
    if message.content is None and message.role == "assistant" and (calls or _thought(message)):
        rendered["content"] = ""
    else:
        rendered["content"] = _content(f"{where}.content", message.content)
    if calls:
        rendered["tool_calls"] = calls
    if message.role == "tool":
        rendered["tool_call_id"] = _call_id(where, message)
    if message.name is not None:
        rendered["name"] = message.name
    if thought := _thought(message):
        rendered |= {"reasoning_content": thought, "reasoning": thought}
    return rendered


_ROLES = {"developer": "system"}


def _refuse_others(where: str, message: ChatMessage) -> None:
    if message.role == "function":
        raise InvalidRequest(
            f'{where}.role: "function" is obsolete; use "tool" with a tool_call_id',
            param=f"{where}.role",
        )
    extra = message.model_extra or {}
    if extra.get("function_call"):
        path = f"{where}.function_call"
        raise InvalidRequest(f"{path} is obsolete; use tool_calls", param=path)
    if extra.get("audio"):
        path = f"{where}.audio"
        raise InvalidRequest(f"{path} is not supported", param=path)
    for name in ("tool_calls", "reasoning_content", "reasoning"):
        if getattr(message, name) and message.role != "assistant":
            path = f"{where}.{name}"
            raise InvalidRequest(f"{path}: only an assistant's message can have it", param=path)


def _thought(message: ChatMessage) -> str:
    return message.reasoning_content or message.reasoning or ""


def _call_id(where: str, message: ChatMessage) -> str:
    if not message.tool_call_id:
        path = f"{where}.tool_call_id"
        raise InvalidRequest(f"{path} must say which call this is the result of", param=path)
    return message.tool_call_id


def _calls(where: str, message: ChatMessage) -> list[dict[str, object]]:
    calls = message.tool_calls or []
    if len(calls) > CALLS_MAX:
        path = f"{where}.tool_calls"
        raise InvalidRequest(f"{path} must hold at most {CALLS_MAX} calls", param=path)
    return [_call(f"{where}.tool_calls[{i}]", call) for i, call in enumerate(calls)]


def _call(path: str, call: Mapping[str, object]) -> dict[str, object]:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), **function}}:
            pass
        case _:
            raise InvalidRequest(
                f'{path} must be {{"id": "...", "type": "function", "function": {{"name": "...",'
                f' "arguments": "..."}}}}, got {shown(call)}',
                param=path,
            )
    arguments = _arguments(f"{path}.function.arguments", function.get("arguments"))
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _arguments(path: str, value: object) -> dict[str, object]:
    """Templates want the object; clients send its JSON text."""
    if isinstance(value, str):
        try:
            value = from_json(value, allow_inf_nan=False) if value.strip() else {}
        except ValueError:
            raise InvalidRequest(f"{path} is not valid JSON", param=path) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path} must be a JSON object, got {shown(value)}", param=path)
    return value


def _content(path: str, content: object) -> str | Sequence[dict[str, object]]:
    match content:
        case str():
            return content
        case list() if content:
            return [_part(f"{path}[{i}]", part) for i, part in enumerate(content)]
    raise InvalidRequest(
        f"{path} must be a string or a non-empty array of text parts, got {shown(content)}",
        param=path,
    )


def _part(path: str, part: object) -> dict[str, object]:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": str(kind)} if kind != "text":
            message = f"{path}: only text parts are supported, got type {shown(kind)}"
            raise InvalidRequest(message, param=f"{path}.type")
    message = f'{path} must be {{"type": "text", "text": "..."}}, got {shown(part)}'
    raise InvalidRequest(message, param=path)
