# SPDX-License-Identifier: Apache-2.0
"""What the model thinks, says and calls, in the words of /v1/responses."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from serverkit import ByteTokenizer
from wirecheck import check

from octavo.chat.parts import Content, Part, Reasoning, ToolArguments, ToolCall
from octavo.server.errors import internal_error
from octavo.server.reply import Ending, Piece, Usage
from octavo.server.responses.writer import ResponseWriter

HEAD = {
    "id": "resp_x",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}
USAGE = Usage(num_input=5, num_output=7, num_cached=2, num_reasoning=3)
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


@dataclass
class Written:
    """The events of an answer, which are checked, and its document."""

    parts: list[list[Part]]
    ending: Ending = STOP
    events: list[dict] = field(default_factory=list)

    def __post_init__(self) -> None:
        writer = ResponseWriter(HEAD, ByteTokenizer(), clock=lambda: 9.0)
        self.events += writer.begin(USAGE)
        for parts in self.parts:
            self.events += writer.add(Piece(parts))
        self.events += writer.end(self.ending)
        self.document = writer.whole()
        for event in self.events:
            assert check("ResponseStreamEvent", event) == []
        assert [event["sequence_number"] for event in self.events] == list(range(len(self.events)))

    def kinds(self) -> list[str]:
        return [event["type"].removeprefix("response.") for event in self.events]


def one_by_one(parts: list[Part]) -> list[list[Part]]:
    return [[part] for part in parts]


def test_each_kind_of_part_is_an_item():
    output = Written(one_by_one(CALLS)).document["output"]
    assert [item["type"] for item in output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    reasoning, message, first, second = output
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert reasoning["summary"] == []
    assert message["content"][0]["text"] == "I'll look."
    assert (first["call_id"], first["name"], first["arguments"]) == (
        "call_a",
        "look",
        '{"at": "me"}',
    )
    assert (second["call_id"], second["arguments"]) == ("call_b", "{}")
    assert {item["status"] for item in output} == {"completed"}
    assert len({item["id"] for item in output}) == 4


def test_items_are_told_of_in_order():
    written = Written(one_by_one(CALLS))
    assert written.kinds() == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    indices = [event["output_index"] for event in written.events if "output_index" in event]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1, 2, 3}


def test_however_the_parts_come_the_document_is_the_same():
    assert Written([CALLS]).document == Written(one_by_one(CALLS)).document


def test_deltas_add_up_to_what_is_done():
    written = Written(one_by_one(CALLS))
    for event in written.events:
        if event["type"].endswith(("text.done", "arguments.done")):
            kind = event["type"].removesuffix("done") + "delta"
            deltas = [
                e["delta"]
                for e in written.events
                if e["type"] == kind and e["item_id"] == event["item_id"]
            ]
            assert "".join(deltas) == event.get("text", event.get("arguments"))


def test_usage_counts_what_was_found_and_thought():
    assert Written([[Content("Hi")]]).document["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 12,
    }


def test_an_empty_answer_is_an_empty_message():
    (item,) = Written([]).document["output"]
    assert item["content"][0]["text"] == ""


def test_what_was_cut_off_says_so_and_what_was_complete_does_not():
    written = Written(one_by_one(CALLS[:5]), Ending("length", None, USAGE))
    assert written.kinds()[-1] == "incomplete"
    statuses = [item["status"] for item in written.document["output"]]
    assert statuses == ["completed", "completed", "incomplete"]
    assert written.document["completed_at"] is None


def test_a_call_that_a_stop_string_cuts_is_incomplete():
    written = Written(one_by_one(CALLS[:5]), Ending("stop", "END", USAGE))
    statuses = [item["status"] for item in written.document["output"]]
    assert (written.document["status"], statuses[-1]) == ("completed", "incomplete")


@pytest.mark.parametrize("num_parts", range(len(CALLS)))
def test_a_failure_closes_what_is_open(num_parts):
    writer = ResponseWriter(HEAD, ByteTokenizer())
    events = [*writer.begin(USAGE), *writer.add(Piece(CALLS[:num_parts]))]
    events += writer.fail(internal_error())
    for event in events:
        assert check("ResponseStreamEvent", event) == []
    kinds = [event["type"] for event in events]
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done")
    assert kinds[-1] == "response.failed"
