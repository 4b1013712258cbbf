# SPDX-License-Identifier: Apache-2.0
"""What the model thinks, says and calls, in the words of /v1/messages."""

from __future__ import annotations

import json
import sys

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from octavo.chat.parts import Content, Part, Reasoning, ToolArguments, ToolCall
from octavo.server.anthropic.writer import MessageWriter
from octavo.server.errors import ApiError
from octavo.server.reply import Ending, Piece, Usage
from octavo.server.sse import to_json

USAGE = Usage(num_input=5, num_output=7, num_cached=2)
MOST = sys.float_info.max
STOP = Ending("stop", None, USAGE)
CALLS: list[Part] = [
    Reasoning("Let me "),
    Reasoning("see."),
    Content("I'll look."),
    ToolCall(0, "call_a", "look"),
    ToolArguments(0, '{"at": '),
    ToolArguments(0, '"me"}'),
    ToolCall(1, "call_b", "listen"),
    ToolArguments(1, "{}"),
]
EVENT = TypeAdapter(RawMessageStreamEvent)


def written(pieces: list[list[Part]], ending: Ending = STOP) -> tuple[list[dict], dict]:
    writer = MessageWriter("msg_x", "m")
    events = list(writer.begin(USAGE))
    for parts in pieces:
        events += writer.add(Piece(parts))
    events += writer.end(ending)
    for event in events:
        if event["type"] != "ping":
            EVENT.validate_python(event)
    Message.model_validate(writer.whole())
    return events, writer.whole()


def one_by_one(parts: list[Part]) -> list[list[Part]]:
    return [[part] for part in parts]


def test_each_kind_of_part_is_a_block():
    _, document = written(one_by_one(CALLS))
    assert document["content"] == [
        {"type": "thinking", "thinking": "Let me see.", "signature": ""},
        {"type": "text", "text": "I'll look."},
        {"type": "tool_use", "id": "call_a", "name": "look", "input": {"at": "me"}},
        {"type": "tool_use", "id": "call_b", "name": "listen", "input": {}},
    ]
    assert document["stop_reason"] == "tool_use"
    assert document["usage"] == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 2,
        "output_tokens": 7,
    }


def test_however_the_parts_come_the_document_is_the_same():
    assert written([CALLS])[1] == written(one_by_one(CALLS))[1]


def test_blocks_are_told_of_one_after_the_other():
    events, document = written(one_by_one(CALLS))
    num_open, index = 0, -1
    grown = [""] * 4
    for event in events:
        if event["type"] == "content_block_start":
            num_open, index = num_open + 1, index + 1
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            (text,) = (value for name, value in delta.items() if name != "type")
            grown[index] += text
        if event["type"].startswith("content_block"):
            assert event["index"] == index
            assert num_open == 1
        if event["type"] == "content_block_stop":
            num_open -= 1
    assert (num_open, index) == (0, 3)
    assert grown[:2] == ["Let me see.", "I'll look."]
    assert json.loads(grown[2]) == document["content"][2]["input"]


@pytest.mark.parametrize(
    ("ending", "reason", "sequence"),
    [
        (Ending("stop", None, USAGE), "end_turn", None),
        (Ending("stop", 7, USAGE), "end_turn", None),
        (Ending("stop", "END", USAGE), "stop_sequence", "END"),
        (Ending("length", None, USAGE), "max_tokens", None),
    ],
)
def test_why_it_ended(ending, reason, sequence):
    events, document = written([[Content("Hi")]], ending)
    assert (document["stop_reason"], document["stop_sequence"]) == (reason, sequence)
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}


def test_arguments_that_were_cut_off_are_given_as_far_as_they_go():
    parts: list[Part] = [ToolCall(0, "call_a", "f"), ToolArguments(0, '{"a": [1, 2], "b": "x')]
    _, document = written([parts], Ending("length", None, USAGE))
    assert document["content"][0]["input"]["a"] == [1, 2]
    _, document = written([[*parts[:1], ToolArguments(0, "no")]])
    assert document["content"][0]["input"] == {}


def test_a_call_that_a_stop_string_cuts_is_not_to_be_made():
    half: list[Part] = [ToolCall(0, "call_a", "f"), ToolArguments(0, '{"a": "')]
    _, document = written([half], Ending("stop", "END", USAGE))
    assert (document["stop_reason"], document["stop_sequence"]) == ("stop_sequence", "END")
    _, document = written([[*half, ToolArguments(0, '"}')]], Ending("stop", "END", USAGE))
    assert (document["stop_reason"], document["stop_sequence"]) == ("tool_use", None)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a": [1e999, -1e999], "b": {"c": NaN}}', {"a": [MOST, -MOST], "b": {"c": None}}),
        (r'{"a": "x\ud800y", "b": 1}', {"a": "x\ufffdy", "b": 1}),
        (r'{"a": "\ud83d\ude00 \u00e9 \\ud800 \n"}', {"a": "\U0001f600 \xe9 \\ud800 \n"}),
    ],
)
def test_arguments_that_no_answer_could_carry_are_given_as_near_as_can_be(arguments, shown):
    parts: list[Part] = [ToolCall(0, "call_a", "f"), ToolArguments(0, arguments)]
    _, document = written([parts])
    assert document["content"][0]["input"] == shown
    to_json(document)


def test_an_empty_answer_is_an_empty_text():
    assert written([])[1]["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "rate_limit_error"), (418, "invalid_request_error"), (502, "api_error")],
)
def test_a_failure_is_an_error_event(status, kind):
    (event,) = MessageWriter("msg_x", "m").fail(ApiError(status, "no"))
    assert event == {"type": "error", "error": {"type": kind, "message": "no"}}
