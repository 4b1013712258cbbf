# SPDX-License-Identifier: Apache-2.0
"""The tools that a conversation offers, and how freely the model may choose among them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from octavo.types.errors import InvalidRequest

TOOLS_MAX = 128  # OpenAI's bound
TOOLS_CHARS_MAX = 1 << 20  # names, descriptions and schemas of one request as JSON
SCHEMA_DEPTH_MAX = 64  # schemas in use nest to ten or so; each level is a level of recursion
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. ``parameters`` is the JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)

    def described(self) -> dict[str, object]:
        """The object that chat templates know."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.schema(),
        }
        return {"type": "function", "function": function}

    def schema(self) -> dict[str, object]:
        """The parameters, with what may be left out filled in."""
        return {"type": "object", "properties": {}, **self.parameters}


class ToolMode(Enum):
    NONE = "none"  # an answer in words
    AUTO = "auto"  # the model decides
    REQUIRED = "required"  # at least one call


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """``name`` narrows REQUIRED down to exactly one call of one tool."""

    mode: ToolMode = ToolMode.AUTO
    name: str | None = None

    @property
    def is_forced(self) -> bool:
        return self.mode is ToolMode.REQUIRED


def make_tool(path: str, name: object, description: object, parameters: object) -> Tool:
    """A tool from what a client sent. ``path`` is where: mistakes are named ``path.field``.

    Raises ``InvalidRequest``. The schema itself is checked only as far as it must be an object's;
    whether it can be followed is found out when it is compiled.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise _wrong(f"{path}.name", "must be 1 to 128 letters, digits, '_', '-' or '.'")
    if description is not None and not isinstance(description, str):
        raise _wrong(f"{path}.description", "must be a string")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise _wrong(f"{path}.parameters", "must be a JSON Schema, which is an object")
    if parameters.get("type", "object") != "object":
        raise _wrong(f"{path}.parameters.type", 'must be "object"')
    if _is_deeper(parameters, SCHEMA_DEPTH_MAX):
        raise _wrong(f"{path}.parameters", f"nests deeper than {SCHEMA_DEPTH_MAX} levels")
    return Tool(name, description or "", parameters)


def check_tools(tools: Sequence[Tool], choice: ToolChoice, *, path: str = "tools") -> None:
    """What the tools of a request must be together. Raises ``InvalidRequest``."""
    if len(tools) > TOOLS_MAX:
        raise _wrong(path, f"must hold at most {TOOLS_MAX} tools, got {len(tools)}")
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise _wrong(f"{path}[{index}]", f"has the name of another tool: {tool.name}")
        seen.add(tool.name)
    size = sum(len(json.dumps(tool.described())) for tool in tools)
    if size > TOOLS_CHARS_MAX:
        raise _wrong(path, f"must have at most {TOOLS_CHARS_MAX} characters of JSON, got {size}")
    if choice.is_forced and not tools:
        raise _wrong("tool_choice", f"forces a call and {path} holds none")
    if choice.name is not None and choice.name not in seen:
        raise _wrong("tool_choice", f"names a tool that {path} lacks: {choice.name[:128]!r}")


def _is_deeper(value: object, depth_max: int) -> bool:
    level: list[object] = [value]
    for _ in range(depth_max + 1):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return False
    return True


def _members(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _wrong(param: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"{param} {what}", param=param)
