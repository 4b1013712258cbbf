# SPDX-License-Identifier: Apache-2.0
"""What a response was asked for, in chat's words."""

from __future__ import annotations

import json
from typing import Any

from octavo.server.errors import shown
from octavo.server.responses.items import Transcript
from octavo.server.responses.schemas import LOGPROBS, ResponsesRequest
from octavo.server.turn import Wish
from octavo.types.errors import InvalidRequest

# Chat's own words, which this endpoint has others for or none.
FOREIGN = (
    "add_generation_prompt best_of continue_final_message early_stopping echo function_call "
    "functions length_penalty logprobs prompt_logprobs return_timeline use_beam_search "
    "max_completion_tokens max_tokens messages n reasoning_effort response_format verbosity"
).split()

# What would need a memory of earlier answers, or somebody who waits for later ones.
STATEFUL = {
    "background": "answers are given while the client waits",
    "conversation": "nothing is stored here: send the earlier items in input",
    "previous_response_id": "nothing is stored here: send the earlier items in input",
    "prompt": "no prompts are stored here: send instructions and input",
}

REPEATED = ("metadata", "reasoning", "text", "tool_choice", "tools")  # the answer says them again
REPEATED_CHARS_MAX = 1 << 18

INCLUDABLE = (LOGPROBS, "reasoning.encrypted_content")  # the second is given to nobody, and null


def wish_of(asked: ResponsesRequest) -> Wish:
    """Raises ``InvalidRequest`` for what has no meaning here."""
    _refuse(asked)
    transcript = Transcript()
    if asked.instructions is not None:
        transcript.add("instructions", {"role": "system", "content": asked.instructions})
    transcript.add_all(asked.input)
    names = {f"messages[{i}]": path for i, path in enumerate(transcript.paths)}
    tools, tool_choice = _tools(asked)
    given_names = [tool.get("name") for tool in asked.tools or ()]
    for i, tool in enumerate(tools or ()):  # some may be left out
        names[f"tools[{i}].function"] = f"tools[{given_names.index(tool['function']['name'])}]"
    reasoning, text = asked.reasoning, asked.text
    fields = {
        **(asked.model_extra or {}),
        "model": asked.model,
        "messages": transcript.messages,
        "max_completion_tokens": asked.max_output_tokens,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "tools": tools,
        "tool_choice": tool_choice,
        "parallel_tool_calls": asked.parallel_tool_calls if tools else None,
        "reasoning_effort": reasoning.effort if reasoning else None,
        "verbosity": text.verbosity if text else None,
        "response_format": _response_format(text.format if text else None),
        "on_overflow": "truncate_middle" if asked.truncation == "auto" else None,
        "user": asked.user,
        "service_tier": asked.service_tier,
    }
    if asked.wants_logprobs:
        fields |= {"logprobs": True, "top_logprobs": asked.top_logprobs}
    given = {name: value for name, value in fields.items() if value is not None}
    return Wish(given, {**RESPELT, **names})


RESPELT = {
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
}


def _refuse(asked: ResponsesRequest) -> None:
    for name in FOREIGN:
        if (asked.model_extra or {}).get(name) is not None:
            raise InvalidRequest(f"{name} is no field of /v1/responses", param=name)
    for name, reason in STATEFUL.items():
        if getattr(asked, name) not in (None, False):
            raise InvalidRequest(f"{name} is not supported: {reason}", param=name)
    for name in REPEATED:
        _check_json(name, asked)
    for i, name in enumerate(asked.include or ()):
        if name not in INCLUDABLE:
            message = f"include[{i}] must be one of {', '.join(INCLUDABLE)}; got {shown(name)}"
            raise InvalidRequest(message, param=f"include[{i}]")
    if asked.stream_options is not None and not asked.stream:
        raise InvalidRequest("stream_options needs stream to be true", param="stream_options")


def _check_json(name: str, asked: ResponsesRequest) -> None:
    """Some readers of JSON let NaN and 1e999 pass; no writer can give them back. And what is too
    long would keep the event loop from others, several times for each answer.
    """
    value = asked.model_dump(include={name})
    try:
        size = len(json.dumps(value, allow_nan=False))
    except ValueError:
        message = f"{name} holds a number that is not finite"
        raise InvalidRequest(message, param=name) from None
    if size > REPEATED_CHARS_MAX:
        message = f"{name} must have at most {REPEATED_CHARS_MAX} characters of JSON, got {size}"
        raise InvalidRequest(message, param=name)


def _response_format(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None or given.get("type") != "json_schema":
        return given
    schema = {name: value for name, value in given.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema}


def _tools(asked: ResponsesRequest) -> tuple[list[dict[str, Any]] | None, object]:
    """Chat's tools and choice. ``allowed_tools`` leaves out the tools that are not allowed."""
    tools = [_tool(i, tool) for i, tool in enumerate(asked.tools or ())]
    match asked.tool_choice:
        case {"type": "function", "name": str(name)}:
            return tools, {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "tools": list(allowed)}:
            mode = asked.tool_choice.get("mode")
            named = [tool.get("name") for tool in allowed if isinstance(tool, dict)]
            names = {name for name in named if isinstance(name, str)}
            return [tool for tool in tools if tool["function"]["name"] in names], mode
        case None | str():
            return tools or None, asked.tool_choice
    what = shown(asked.tool_choice)
    message = f"tool_choice must be a mode, a function or allowed_tools, got {what}"
    raise InvalidRequest(message, param="tool_choice")


def _tool(index: int, tool: dict[str, Any]) -> dict[str, Any]:
    path = f"tools[{index}]"
    if tool.get("type") != "function":
        message = f"{path}: only function tools are supported, got type {shown(tool.get('type'))}"
        raise InvalidRequest(message, param=f"{path}.type")
    if not isinstance(tool.get("name"), str):
        message = f"{path}.name must be a string, got {shown(tool.get('name'))}"
        raise InvalidRequest(message, param=f"{path}.name")
    names = ("name", "description", "parameters", "strict")
    function = {name: tool[name] for name in names if tool.get(name) is not None}
    return {"type": "function", "function": function}
