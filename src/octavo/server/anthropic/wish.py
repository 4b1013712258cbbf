# SPDX-License-Identifier: Apache-2.0
"""What a message was asked for, in chat's words."""

from __future__ import annotations

from typing import Any

from octavo.server.anthropic.blocks import Transcript
from octavo.server.anthropic.schemas import CountRequest, MessagesRequest, ToolChoice
from octavo.server.errors import shown
from octavo.server.turn import Wish
from octavo.types.errors import InvalidRequest

# Chat's own words, which this endpoint has others for or none.
FOREIGN = (
    "add_generation_prompt best_of continue_final_message early_stopping echo function_call "
    "functions length_penalty logprobs prompt_logprobs return_timeline use_beam_search "
    "max_completion_tokens n parallel_tool_calls reasoning_effort response_format stop "
    "stream_options top_logprobs verbosity"
).split()

# What only Anthropic's own machines have.
ABSENT = ("container", "mcp_servers")

RESPELT = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
    "response_format.json_schema.schema": "output_config.format.schema",
    "reasoning_effort": "output_config.effort",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}


def wish_of(asked: CountRequest) -> Wish:
    """Raises ``InvalidRequest`` for what has no meaning here."""
    _refuse(asked)
    transcript = Transcript(asked.system, asked.messages)
    fields: dict[str, Any] = {
        **(asked.model_extra or {}),
        "model": asked.model,
        "messages": transcript.messages,
        **_tool_fields(asked),
        **_output_fields(asked),
    }
    names = {f"messages[{i}]": path for i, path in enumerate(transcript.paths)}
    for i, _ in enumerate(asked.tools or ()):
        names[f"tools[{i}].function"] = f"tools[{i}]"
        names[f"tools[{i}].function.parameters"] = f"tools[{i}].input_schema"
    if transcript.is_begun:
        fields |= {"continue_final_message": True, "add_generation_prompt": False}
        names["continue_final_message"] = f"messages[{len(asked.messages) - 1}].role"
    if isinstance(asked, MessagesRequest):
        fields |= {
            "max_tokens": asked.max_tokens,
            "stop": asked.stop_sequences,
            "temperature": asked.temperature,
            "top_k": asked.top_k,
            "top_p": asked.top_p,
        }
    given = {name: value for name, value in fields.items() if value is not None}
    return Wish(given, {**RESPELT, **names})


def _refuse(asked: CountRequest) -> None:
    extra = asked.model_extra or {}
    for name in FOREIGN:
        if extra.get(name) is not None:
            raise InvalidRequest(f"{name} is no field of /v1/messages", param=name)
    for name in ABSENT:
        if extra.get(name) not in (None, []):
            raise InvalidRequest(f"{name} is not supported here", param=name)
    thinking = asked.thinking
    if thinking is None or not isinstance(asked, MessagesRequest):
        return
    if thinking.type == "enabled" and thinking.budget_tokens is None:
        message = "thinking.budget_tokens is required when thinking is enabled"
        raise InvalidRequest(message, param="thinking.budget_tokens")
    if thinking.budget_tokens is not None and thinking.budget_tokens >= asked.max_tokens:
        message = f"thinking.budget_tokens ({thinking.budget_tokens}) must be less than max_tokens"
        message += f" ({asked.max_tokens})"
        raise InvalidRequest(message, param="thinking.budget_tokens")


def _output_fields(asked: CountRequest) -> dict[str, Any]:
    config, thinking = asked.output_config, asked.thinking
    user = (asked.metadata or {}).get("user_id")
    if user is not None and not isinstance(user, str):
        message = f"metadata.user_id must be a string, got {shown(user)}"
        raise InvalidRequest(message, param="metadata.user_id")
    effort = config.effort if config else None
    if thinking is not None and thinking.type == "disabled":
        effort = "none"
    return {
        "user": user,
        "reasoning_effort": effort,
        "response_format": _response_format(config.format if config else None),
    }


def _response_format(given: dict[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if given.get("type") != "json_schema":
        message = f"output_config.format.type must be json_schema, got {shown(given.get('type'))}"
        raise InvalidRequest(message, param="output_config.format.type")
    schema = {"name": "answer", "schema": given.get("schema"), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def _tool_fields(asked: CountRequest) -> dict[str, Any]:
    tools = [_tool(f"tools[{i}]", tool) for i, tool in enumerate(asked.tools or ())]
    choice = asked.tool_choice
    is_serial = choice is not None and choice.disable_parallel_tool_use
    return {
        "tools": tools or None,
        "tool_choice": None if choice is None else _tool_choice(choice),
        "parallel_tool_calls": False if is_serial else None,
    }


def _tool_choice(choice: ToolChoice) -> object:
    if choice.type == "any":
        return "required"
    if choice.type != "tool":
        return choice.type
    if choice.name is None:
        message = "tool_choice.name is required when tool_choice.type is tool"
        raise InvalidRequest(message, param="tool_choice.name")
    return {"type": "function", "function": {"name": choice.name}}


def _tool(path: str, tool: dict[str, Any]) -> dict[str, Any]:
    kind = tool.get("type", "custom")
    if kind not in ("custom", None):
        message = f"{path}: tools that the server runs are not supported, got type {shown(kind)}"
        raise InvalidRequest(message, param=f"{path}.type")
    if not isinstance(tool.get("name"), str):
        message = f"{path}.name must be a string, got {shown(tool.get('name'))}"
        raise InvalidRequest(message, param=f"{path}.name")
    names = {"name": "name", "description": "description", "input_schema": "parameters"}
    given = {new: tool[old] for old, new in names.items() if tool.get(old) is not None}
    if tool.get("strict") is not None:
        given["strict"] = tool["strict"]
    return {"type": "function", "function": given}
