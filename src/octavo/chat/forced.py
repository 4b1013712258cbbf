# SPDX-License-Identifier: Apache-2.0
"""Calls that the model has to make: the form of the answer that leaves it no other way.

The form is JSON, whatever the model's own way of calling: an array of calls, or for a tool that is
named the arguments alone. A grammar holds the model to it, so it works with any model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from octavo.chat.json_calls import JsonSyntax
from octavo.chat.tools import Tool, ToolChoice
from octavo.types.structured_outputs import StructuredOutputs

# What these hold is data, in which "$ref" means nothing.
_DATA = frozenset({"const", "default", "enum", "examples"})
# Their members are named by the tool's author, and may be called "enum" or "$ref" too.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


def forced_syntax(choice: ToolChoice) -> JsonSyntax:
    """How the answer to ``forced_form`` is to be read."""
    return JsonSyntax(bare=True, only=choice.name)


def forced_form(tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> StructuredOutputs:
    """``parallel``: more than one call may be made. A call that has begun is completed before
    ``max_tokens`` runs out, if there is room for it at all.
    """
    if choice.name is not None:
        schema = next(tool.schema() for tool in tools if tool.name == choice.name)
    else:
        schema = _calls_schema(tools, parallel=parallel)
    return StructuredOutputs(json=json.dumps(schema), closes_in_time=True)


def _calls_schema(tools: Sequence[Tool], *, parallel: bool) -> dict[str, object]:
    """An array of calls. The schema of each tool moves into a definition of its own, and its
    references follow it.
    """
    definitions = {f"tool{i}": _moved(tool.schema(), i) for i, tool in enumerate(tools)}
    calls = [_call_schema(tool.name, f"#/$defs/tool{i}") for i, tool in enumerate(tools)]
    schema: dict[str, object] = {
        "type": "array",
        "minItems": 1,
        "items": calls[0] if len(calls) == 1 else {"anyOf": calls},
        "$defs": definitions,
    }
    if not parallel:
        schema["maxItems"] = 1
    return schema


def _call_schema(name: str, reference: str) -> dict[str, object]:
    """The name comes first, so that it is known before the arguments are."""
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"$ref": reference}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema: Mapping[str, object], index: int) -> dict[str, object]:
    """The schema with "#/..." pointing into where it is now: "#/$defs/tool<index>/..."."""
    base = f"#/$defs/tool{index}"
    return {key: _moved_member(key, value, base) for key, value in schema.items()}


def _moved_member(key: str, value: object, base: str) -> object:
    if key == "$ref" and isinstance(value, str) and value.startswith("#"):
        return base + value[1:]
    if key in _DATA:
        return value
    if key in _NAMED and isinstance(value, dict):
        return {name: _moved_value(inner, base) for name, inner in value.items()}
    return _moved_value(value, base)


def _moved_value(value: object, base: str) -> object:
    if isinstance(value, dict):
        return {key: _moved_member(key, inner, base) for key, inner in value.items()}
    if isinstance(value, list):
        return [_moved_value(inner, base) for inner in value]
    return value
