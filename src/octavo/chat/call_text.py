# SPDX-License-Identifier: Apache-2.0
"""Finished pieces of call text to names and arguments."""

from __future__ import annotations

import json
from typing import NamedTuple


class CallText(NamedTuple):
    """A tool's name and its arguments as the JSON text of an object."""

    name: str
    arguments: str


def call_of_json(text: str) -> CallText | None:
    """The call that a JSON object spells, in any of the ways that models do; None if it is none.

    Known ways: ``arguments`` or ``parameters``, as an object or as a string that holds one, or left
    out; all of it again inside ``function``.
    """
    try:
        value = json.loads(text, strict=False)
        inner = value.get("function")
        if isinstance(inner, dict):
            value = inner
        arguments = value.get("arguments", value.get("parameters"))
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False)
        return make_call(value.get("name"), {} if arguments is None else arguments)
    except (ValueError, RecursionError, AttributeError):
        return None


def make_call(name: object, arguments: object) -> CallText | None:
    """None unless the name is text and the arguments are an object that JSON can spell."""
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    try:
        return CallText(name, _dumps(arguments))
    except (ValueError, RecursionError):
        return None


def arguments_object(text: str) -> dict[str, object] | None:
    """The object that the joined ``ToolArguments`` of a call spell.

    None if the answer ended, or the model went astray, before they were complete.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _dumps(value: dict[str, object]) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can spell
        return json.dumps(value, allow_nan=False)
    return text
