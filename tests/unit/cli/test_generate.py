# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from clikit import Opener, invoke
from llmkit import text_after


@pytest.fixture
def batch(tmp_path):
    """A function from lines to (result, replies)."""

    def run(*lines, args=(), **engine):
        file = tmp_path / "in.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        file.write_text("\n".join(texts) + "\n", encoding="utf-8")
        out = tmp_path / "out.jsonl"
        opener = Opener(**engine)
        result = invoke("generate", str(file), "-o", str(out), *args, opener=opener)
        replies = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        opener.assembled.engine.check()
        return result, replies

    return run


def test_answers_come_in_the_order_of_the_lines_whatever_ends_first(batch):
    result, replies = batch(
        {"prompt": "a", "max_tokens": 9, "id": "long"},
        {"prompt": "bb", "max_tokens": 1, "custom_id": 7},
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
    )
    assert result.exit_code == 0
    assert [reply["text"] for reply in replies] == [
        text_after(1, 9),
        text_after(2, 1),
        text_after(len("[user]hi[assistant]"), 2),
    ]
    assert replies[0] == {
        "index": 0,
        "id": "long",
        "text": text_after(1, 9),
        "finish_reason": "length",
        "usage": {"prompt_tokens": 1, "completion_tokens": 9},
    }
    assert replies[1]["custom_id"] == 7
    assert "3 lines · 12 tokens" in result.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([1], "must be a JSON object"),
        ({"prompt": "a", "temprature": 1}, "unknown field 'temprature'"),
        ({"max_tokens": 3}, 'needs "prompt" or "messages"'),
        ({"prompt": "a", "messages": []}, "not both"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens must be"),
        ({"prompt": "a", "temperature": "hot"}, "temperature must be"),
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": "x" * 100}, "max_model_len"),
        ({"prompt": 5}, "must be a string or a list of token ids"),
        ({"prompt": ["a", "b"]}, "a prompt is a string, a list of token ids"),
        ({"prompt": []}, "prompt is empty"),
        ({"messages": "hi"}, "messages must be"),
    ],
)
def test_a_bad_line_fails_alone(batch, line, message):
    result, replies = batch({"prompt": "a"}, line, {"prompt": "b"}, args=("-n", "2"))
    assert result.exit_code == 1
    assert message in replies[1]["error"]["message"]
    assert [replies[0]["text"], replies[2]["text"]] == [text_after(1, 2)] * 2
    assert "3 lines, 1 failed" in result.stderr


def test_a_failed_step_is_an_error_of_its_lines(batch):
    result, replies = batch({"prompt": "a"}, args=("-n", "5"), fail_steps=[2])
    assert result.exit_code == 1
    assert "failed on purpose" in replies[0]["error"]["message"]


def test_blank_lines_and_a_byte_order_mark_are_no_lines(batch):
    _, replies = batch("\ufeff" + json.dumps({"prompt": "a"}), "", "  ", args=("-n", "1"))
    assert [reply["index"] for reply in replies] == [0]


def test_a_line_separator_inside_a_string_does_not_end_the_line(batch):
    text = json.dumps({"prompt": "a\u2028b"}, ensure_ascii=False)
    result, replies = batch(text, args=("-n", "1"))
    assert result.exit_code == 0
    assert replies[0]["usage"]["prompt_tokens"] == len("a\u2028b".encode())


def test_standard_input_to_standard_output():
    result = invoke("generate", "-", "-n", "2", input='{"prompt": "abc"}\n')
    assert json.loads(result.stdout)["text"] == text_after(3, 2)


def test_files_are_checked_before_a_model_is_opened(tmp_path):
    opener = Opener()
    missing = invoke("generate", str(tmp_path / "no.jsonl"), opener=opener)
    assert missing.exit_code == 1
    assert "cannot read" in missing.stderr
    file = tmp_path / "in.jsonl"
    file.write_text('{"prompt": "a"}\n')
    unwritable = invoke("generate", str(file), "-o", str(tmp_path), opener=opener)
    assert "cannot write" in unwritable.stderr
    assert opener.model is None
