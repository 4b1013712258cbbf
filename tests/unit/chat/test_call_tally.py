# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.chat.call_tally import CallTally
from octavo.chat.parts import Content, Part, Reasoning, ToolArguments, ToolCall

CALL = ToolCall(0, "a", "f")


@pytest.mark.parametrize(
    ("parts", "is_for_tools", "is_within_call"),
    [
        ([], False, False),
        ([Reasoning("{"), Content("{")], False, False),
        ([CALL], False, True),
        ([CALL, ToolArguments(0, '{"a": "}')], False, True),
        ([CALL, ToolArguments(0, '{"a": "}"'), ToolArguments(0, "}")], True, False),
        ([CALL, ToolArguments(0, "{}"), Content("{")], True, False),
        ([CALL, ToolArguments(0, "{}"), ToolCall(1, "b", "f"), ToolArguments(1, "{")], False, True),
        ([CALL, ToolArguments(0, "{)")], True, False),  # no JSON: the model's own mistake
    ],
)
def test_an_answer_waits_for_results_if_its_last_call_is_complete(
    parts: list[Part], is_for_tools: bool, is_within_call: bool
) -> None:
    tally = CallTally()
    for part in parts:
        tally.add([part])
    assert (tally.is_for_tools, tally.is_within_call) == (is_for_tools, is_within_call)
