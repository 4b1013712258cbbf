# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal

from clikit import Opener, invoke
from fakes import ByteTokenizer
from llmkit import text_after

CHAT_PROMPT = "[user]hi[assistant]"


def test_the_answer_goes_to_standard_output_and_the_counts_to_standard_error():
    result = invoke("run", "hi", "--max-tokens", "5")
    assert result.exit_code == 0
    assert result.stdout == text_after(len(CHAT_PROMPT), 5) + "\n"
    assert f"{len(CHAT_PROMPT)} prompt + 5 answer tokens" in result.stderr
    assert "ended by length" in result.stderr
    assert invoke("run", "hi", "-n", "5", "--no-stats").stderr == ""


def test_raw_skips_the_template_and_a_base_model_has_none():
    assert invoke("run", "--raw", "hi", "-n", "3").stdout == text_after(2, 3) + "\n"
    base = Opener(tokenizer=ByteTokenizer())
    assert invoke("run", "hi", "-n", "3", opener=base).stdout == text_after(2, 3) + "\n"


def test_a_system_message_comes_first():
    expected = len("[system]be brief[user]hi[assistant]")
    result = invoke("run", "hi", "--system", "be brief", "-n", "1")
    assert f"{expected} prompt + 1 answer" in result.stderr


def test_standard_input_and_the_sample_question():
    assert invoke("run", "-", "-n", "2", "--raw", input="abc").stdout == text_after(3, 2) + "\n"
    assert "> Give three tips" in invoke("run", "-n", "1").stderr


def test_flags_reach_the_engine_under_their_own_names():
    opener = Opener()
    result = invoke(
        *("run", "hi", "-m", "some/model", "--threads", "3", "--kv_cache_memory", "2MiB"),
        *("--max-model-len", "1k", "-n", "1"),
        opener=opener,
    )
    assert result.exit_code == 0
    assert opener.model == "some/model"
    assert opener.options == {
        "threads": 3,
        "kv_cache_memory_bytes": 2 * 2**20,
        "max_model_len": 1000,
        "max_num_seqs": 1,
    }
    assert opener.assembled.num_closes == 1


def test_penalties_reach_the_engine_and_are_checked_by_name():
    flags = ("--min-p", "0.1", "--repetition-penalty", "1.2", "--presence-penalty", "-0.5")
    more = ("--frequency-penalty", "1", "--bad-word", "no", "--bad-word", "yes")
    assert invoke("run", "hi", "-n", "2", *flags, *more).exit_code == 0
    for flag, value in (("min-p", "2"), ("frequency-penalty", "3"), ("bad-word", "")):
        result = invoke("run", "hi", f"--{flag}", value)
        assert result.exit_code == 1
        assert flag.replace("-", "_") in result.stderr


def test_bad_sampling_is_refused_before_a_model_is_opened():
    opener = Opener()
    result = invoke("run", "hi", "--top-p", "0", opener=opener)
    assert result.exit_code == 1
    assert "error: top_p must be above 0" in result.stderr
    assert opener.model is None


def test_a_prompt_that_is_too_long_is_one_line():
    result = invoke("run", "x" * 100)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: the prompt has")


def test_a_failed_step_is_an_error():
    result = invoke("run", "hi", "-n", "5", opener=Opener(fail_steps=[3]))
    assert result.exit_code == 1
    assert "failed on purpose" in result.stderr


def test_ctrl_c_prints_what_there_is_and_exits_130():
    steps = iter(range(100))

    def gate() -> None:
        if next(steps) == 2:
            signal.raise_signal(signal.SIGINT)

    opener = Opener(gate=gate)
    result = invoke("run", "hi", "-n", "20", opener=opener)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert result.stdout.strip() in text_after(len(CHAT_PROMPT), 20)
    assert opener.assembled.num_closes == 1


def test_several_answers_are_shown_one_after_the_other():
    opener = Opener()
    result = invoke(
        "run", "--raw", "hi", "-n", "3", "--n", "2", "--temperature", "1", opener=opener
    )
    assert result.exit_code == 0
    assert result.stdout == (text_after(2, 3) + "\n") * 2
    assert "--- 1\n--- 2\n" in result.stderr.replace(text_after(2, 3) + "\n", "")
    assert "2 prompt + 6 answer tokens" in result.stderr
    assert opener.options["max_num_seqs"] == 2


def test_greedy_answers_would_all_be_the_same():
    result = invoke("run", "--raw", "hi", "--n", "2")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "n must be 1 when temperature is 0" in result.stderr
