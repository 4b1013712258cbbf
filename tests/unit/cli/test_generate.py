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
        ({"prompt": "a", "logit_bias": {"7": 1000}}, "logit_bias[7] must be in"),
        ({"prompt": "a", "logit_bias": {"70000": 1}}, "outside the vocabulary"),
        ({"prompt": "a", "allowed_token_ids": []}, "no token is allowed"),
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


def test_a_line_may_set_what_its_answer_may_have(batch):
    only = {"prompt": "a", "allowed_token_ids": [120], "presence_penalty": 1.0}
    _, replies = batch(only, {"prompt": "a"}, args=("-n", "3"))
    assert [replies[0]["text"], replies[1]["text"]] == ["xxx", text_after(1, 3)]


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


def test_a_line_may_ask_for_several_answers(batch):
    result, (several, best, plain) = batch(
        {"prompt": "a", "n": 2, "temperature": 1, "max_tokens": 3},
        {"prompt": "a", "n": 1, "best_of": 3, "temperature": 1, "max_tokens": 3},
        {"prompt": "a", "max_tokens": 3},
    )
    assert result.exit_code == 0
    assert [choice["text"] for choice in several["choices"]] == [text_after(1, 3)] * 2
    assert several["text"] == text_after(1, 3)
    assert several["usage"]["completion_tokens"] == 6
    assert "choices" not in best
    assert best["usage"]["completion_tokens"] == 9
    assert "choices" not in plain


def test_a_line_may_ask_for_a_beam_search(batch):
    result, (search, wide) = batch(
        {"prompt": "a", "use_beam_search": True, "n": 3, "max_tokens": 3},
        {"prompt": "a", "use_beam_search": True, "n": 2, "best_of": 4, "early_stopping": "never"},
    )
    assert result.exit_code == 0
    scores = [choice["score"] for choice in search["choices"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert len(wide["choices"]) == 2


def test_a_line_says_how_it_stands_and_what_becomes_of_too_much(batch):
    prompt = "x" * 200  # more than the 64 tokens of the model's context
    result, replies = batch(
        {"prompt": "a", "service_class": "batch", "user": "me", "cache_salt": "s", "max_tokens": 1},
        {"prompt": prompt, "on_overflow": "truncate_left", "max_tokens": 4},
        {"prompt": "a", "timeout_s": 100, "max_tokens": 1},
    )
    assert result.exit_code == 0
    assert [reply["finish_reason"] for reply in replies] == ["length"] * 3
    assert replies[1]["usage"] == {
        "prompt_tokens": 60,
        "completion_tokens": 4,
        "truncated_tokens": 140,
    }
    assert "truncated_tokens" not in replies[0]["usage"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"priority": 1}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"service_class": "gold"}, "service_class"),
        ({"cache_salt": 3}, "cache_salt"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"use_beam_search": True, "stop": "x"}, "stop"),
        ({"length_penalty": 2}, "length_penalty"),
        ({"n": 2}, "n"),
        ({"structured_outputs": ["a"]}, "structured_outputs"),
        ({"structured_outputs": {"choices": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"], "regex": "a"}}, "structured_outputs"),
    ],
)
def test_a_bad_wish_fails_its_own_line(batch, fields, param):
    result, (bad, good) = batch({"prompt": "a", **fields}, {"prompt": "a", "max_tokens": 1})
    assert result.exit_code == 1
    assert bad["error"]["param"] == param
    assert good["text"] == text_after(1, 1)
