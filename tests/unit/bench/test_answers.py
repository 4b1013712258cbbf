# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from octavo.bench.answers import AnswerReader, message_of
from octavo.bench.records import Record


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def text(value: str, finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": value, "finish_reason": finish_reason}]})


def delta(finish_reason: str | None = None, **fields: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}})
DONE = b"data: [DONE]\n\n"


def read(*pieces: bytes, status: int = 200) -> Record:
    """The pieces arrive at 1, 2, 3, ...; the request was sent at 0.5."""
    record = Record(0.0, 0.5, 10)
    reader = AnswerReader(record)
    for now_s, piece in enumerate(pieces, 1):
        reader.take(float(now_s), piece)
    reader.close(status, len(pieces) + 1.0)
    return record


def test_a_completion():
    record = read(text("a"), text("b"), text("", "length"), USAGE, DONE)
    assert record.error is None
    assert record.text == "ab"
    assert (record.token_times_s, record.end_s) == ([1.0, 2.0], 3.0)
    assert (record.num_prompt_tokens, record.num_output_tokens) == (7, 5)
    assert record.is_counted


def test_a_chat_whose_first_chunk_is_only_a_role():
    """The role is no token: it may come long before one."""
    record = read(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(content="x"),
        delta("stop"),
        DONE,
    )
    assert (record.token_times_s, record.end_s, record.text) == ([2.0, 3.0], 4.0, "hmx")
    assert record.ttft_s == 1.5


def test_calls_of_tools_are_tokens_too():
    record = read(delta(tool_calls=[{"index": 0}]), delta("tool_calls"), DONE)
    assert record.token_times_s == [1.0]


def test_without_usage_chunks_are_counted():
    record = read(text("a"), text("b", "stop"), DONE)
    assert (record.num_output_tokens, record.num_prompt_tokens) == (2, 10)
    assert not record.is_counted


def test_usage_in_every_chunk_counts_once():
    chunk = {"choices": [{"text": "a", "finish_reason": "stop"}]}
    first = event(chunk | {"usage": {"prompt_tokens": 7, "completion_tokens": 1}})
    assert read(first, USAGE, DONE).num_output_tokens == 5


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([text("a"), DONE], "without a finish reason"),
        ([], "without a finish reason"),
        ([text("", "stop"), DONE], "no tokens"),
        ([text("a"), event({"error": {"message": "out of blocks"}}), DONE], "out of blocks"),
        ([text("a"), b"data: {nonsense\n\n"], "no JSON object"),
        ([b"data: 5\n\n"], "no JSON object"),
    ],
)
def test_half_an_answer_is_a_failure(pieces, said):
    record = read(*pieces)
    assert said in record.error
    assert record.end_s == len(pieces) + 1


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": 5},
        {"choices": [5]},
        {"choices": [{"delta": 5}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"usage": {"prompt_tokens": "7", "completion_tokens": -1}},
        {"usage": {"prompt_tokens": 7}},
    ],
)
def test_odd_chunks_bring_nothing(odd):
    record = read(event(odd), text("a", "stop"), DONE)
    assert (record.error, record.text, record.is_counted) == (None, "a", False)


def test_a_refusal_is_told_with_its_status():
    record = read(b'{"error": {"message": "unknown\\nmodel"}}', status=404)
    assert record.error == "status 404: unknown model"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "a"}}', "a"),
        (b'{"error": "b"}', "b"),
        (b'{"message": "c"}', "c"),
        (b'{"detail": "d"}', "d"),
        (b"<html>  e\n</html>", "<html> e </html>"),
        (b"[1]", "[1]"),
        (b"\xff", "\ufffd"),
        (b'{"error": "\\u001b[2J"}', "?[2J"),
        (b"", "no message"),
        (b"x" * 5000, "x" * 500),
    ],
)
def test_what_refusals_say(body, said):
    assert message_of(body) == said
