# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.chat.tools import (
    SCHEMA_DEPTH_MAX,
    TOOLS_CHARS_MAX,
    TOOLS_MAX,
    Tool,
    ToolChoice,
    ToolMode,
    check_tools,
    make_tool,
)
from octavo.types.errors import InvalidRequest

AUTO = ToolChoice()


def nested(depth: int) -> dict[str, object]:
    schema: dict[str, object] = {}
    for _ in range(depth):
        schema = {"properties": schema}
    return schema


def test_a_tool_with_everything_left_out():
    tool = make_tool("t", "a-b.c_1", None, None)
    assert tool.described()["function"] == {
        "name": "a-b.c_1",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize(
    ("name", "description", "parameters", "param"),
    [
        (None, None, None, "t.name"),
        ("", None, None, "t.name"),
        ("a b", None, None, "t.name"),
        ('a"', None, None, "t.name"),
        ("a\n", None, None, "t.name"),
        ("a" * 129, None, None, "t.name"),
        ("a", 5, None, "t.description"),
        ("a", None, [], "t.parameters"),
        ("a", None, {"type": "array"}, "t.parameters.type"),
        ("a", None, nested(SCHEMA_DEPTH_MAX + 1), "t.parameters"),
    ],
)
def test_what_is_no_tool(name, description, parameters, param):
    with pytest.raises(InvalidRequest) as caught:
        make_tool("t", name, description, parameters)
    assert caught.value.param == param
    assert str(caught.value).startswith(param)


def test_a_deep_schema_is_taken_up_to_the_bound():
    assert make_tool("t", "a" * 128, "", nested(SCHEMA_DEPTH_MAX)).parameters


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ([Tool("a"), Tool("b"), Tool("a")], AUTO, "tools[2]"),
        ([Tool(f"t{i}") for i in range(TOOLS_MAX + 1)], AUTO, "tools"),
        ([Tool("a", "x" * TOOLS_CHARS_MAX)], AUTO, "tools"),
        ([], ToolChoice(ToolMode.REQUIRED), "tool_choice"),
        ([Tool("a")], ToolChoice(ToolMode.REQUIRED, "b"), "tool_choice"),
    ],
)
def test_tools_that_do_not_go_together(tools, choice, param):
    with pytest.raises(InvalidRequest) as caught:
        check_tools(tools, choice)
    assert caught.value.param == param


def test_tools_that_do():
    check_tools([Tool(f"t{i}") for i in range(TOOLS_MAX)], ToolChoice(ToolMode.REQUIRED, "t5"))
    check_tools([], AUTO)
    check_tools([], ToolChoice(ToolMode.NONE))
