# SPDX-License-Identifier: Apache-2.0
"""Stop rules and logprobs, seen through the engine."""

from __future__ import annotations

import pytest

from enginekit import greedy, make_engine, run_all, run_one, script
from fakes import EchoExecutor
from octavo.types.outputs import CompletionOutput, Logprob
from octavo.types.sampling_params import OutputKind


def answer(
    *token_ids: int, max_tokens: int = 20, depth: int = 1, **params: object
) -> CompletionOutput:
    """What becomes of a model that wants to say these tokens."""
    rule = script(*token_ids, prompt_len=1)
    engine = make_engine(EchoExecutor(rule=rule, depth=depth))
    return run_one(engine, "x", greedy(max_tokens, **params)).outputs[0]


class TestStopTokens:
    def test_end_of_sequence_has_no_stop_reason_and_no_text(self) -> None:
        sample = answer(97, 257)
        assert (sample.text, sample.finish_reason, sample.stop_reason) == ("a", "stop", None)
        assert sample.token_ids == (97, 257)

    def test_ignore_eos_goes_on_past_every_end_of_the_models_own(self) -> None:
        sample = answer(97, 257, 258, 98, max_tokens=4, ignore_eos=True)
        assert (sample.finish_reason, sample.text) == ("length", "ab")

    def test_end_of_turn_is_named(self) -> None:
        assert (answer(97, 258).finish_reason, answer(97, 258).stop_reason) == ("stop", 258)

    def test_a_stop_id_is_named_and_left_out_unless_it_is_wanted(self) -> None:
        sample = answer(97, 98, stop_token_ids=[98])
        assert (sample.text, sample.finish_reason, sample.stop_reason) == ("a", "stop", 98)
        sample = answer(97, 98, stop_token_ids=[98], include_stop_str_in_output=True)
        assert sample.text == "ab"

    def test_a_stop_id_at_the_length_limit_is_a_stop(self) -> None:
        assert answer(97, 98, max_tokens=2, stop_token_ids=[98]).finish_reason == "stop"

    def test_asking_for_the_primary_end_as_a_stop_id_names_it_under_ignore_eos(self) -> None:
        sample = answer(97, 257, stop_token_ids=[257], ignore_eos=True)
        assert (sample.finish_reason, sample.stop_reason) == ("stop", 257)


def test_control_tokens_are_left_out_but_for_those_to_keep() -> None:
    said = (97, 256, 257, 98)
    assert answer(*said, max_tokens=4, ignore_eos=True).text == "ab"
    kept = answer(*said, max_tokens=4, ignore_eos=True, keep_special_ids=[256])
    assert kept.text == "a<256>b"


class TestStopStrings:
    def test_the_text_is_cut_at_the_match(self) -> None:
        sample = answer(*b"one END two", stop="END")
        assert (sample.text, sample.finish_reason, sample.stop_reason) == ("one ", "stop", "END")
        assert sample.token_ids == tuple(b"one END")

    def test_or_after_it(self) -> None:
        assert answer(*b"one END", stop=["END"], include_stop_str_in_output=True).text == "one END"

    def test_at_the_length_limit_it_is_a_stop(self) -> None:
        sample = answer(*b"abEND", max_tokens=5, stop="END")
        assert (sample.finish_reason, sample.stop_reason, sample.text) == ("stop", "END", "ab")

    def test_half_a_match_at_the_end_is_text(self) -> None:
        sample = answer(*b"abEN", max_tokens=4, stop="END")
        assert (sample.finish_reason, sample.text) == ("length", "abEN")

    def test_what_may_become_a_match_is_held_back_from_a_stream(self) -> None:
        rule = script(*b"aENbEND", prompt_len=1)
        engine = make_engine(EchoExecutor(rule=rule))
        engine.add_request("r", "x", greedy(20, stop="END", output_kind=OutputKind.DELTA))
        assert [output.outputs[0].text for output in run_all(engine)] == [
            "a",
            "",
            "",
            "ENb",
            "",
            "",
            "",
        ]

    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_tokens_computed_beyond_the_match_are_dropped(self, depth: int) -> None:
        sample = answer(*b"abcdef", depth=depth, stop="c")
        assert (sample.text, sample.token_ids) == ("ab", tuple(b"abc"))


class TestMinTokens:
    def test_no_end_is_sampled_before(self) -> None:
        sample = answer(257, min_tokens=3)
        assert len(sample.token_ids) == 4
        assert (sample.finish_reason, sample.token_ids[-1]) == ("stop", 257)
        assert not {257, 258} & set(sample.token_ids[:3])

    def test_no_stop_string_counts_before(self) -> None:
        sample = answer(*b"abababab", min_tokens=5, stop="b")
        assert (sample.text, sample.finish_reason) == ("ababa", "stop")


class TestLogprobs:
    def test_the_sampled_token_comes_first_and_then_the_likeliest(self) -> None:
        sample = answer(97, 1, max_tokens=2, logprobs=2)
        assert sample.logprobs is not None
        assert sample.logprobs[0] == {
            97: Logprob(-97 / 8, 98, "a"),
            0: Logprob(0.0, 1, "\x00"),
            1: Logprob(-1 / 8, 2, "\x01"),
        }
        assert list(sample.logprobs[1]) == [1, 0]  # one of the two: not named twice
        assert sample.cumulative_logprob == -98 / 8

    def test_zero_reports_the_sampled_token_alone(self) -> None:
        sample = answer(97, max_tokens=1, logprobs=0)
        assert sample.logprobs == ({97: Logprob(-97 / 8, 98, "a")},)

    def test_nobody_asked(self) -> None:
        sample = answer(97, max_tokens=1, prompt_logprobs=1)
        assert (sample.logprobs, sample.cumulative_logprob) == (None, None)

    def test_a_stream_gets_each_once(self) -> None:
        rule = script(*b"abc", prompt_len=1)
        engine = make_engine(EchoExecutor(rule=rule))
        engine.add_request("r", "x", greedy(3, logprobs=0, output_kind=OutputKind.DELTA))
        outputs = [output.outputs[0] for output in run_all(engine)]
        assert [list(entry) for o in outputs for entry in o.logprobs or ()] == [[97], [98], [99]]
        assert [o.cumulative_logprob for o in outputs] == [-97 / 8, -195 / 8, -294 / 8]


class TestPromptLogprobs:
    @pytest.mark.parametrize("budget", [1, 2, 3, 32])
    def test_every_position_but_the_first_in_order(self, budget: int) -> None:
        engine = make_engine(max_num_batched_tokens=budget)
        last = run_one(engine, [5, 6, 7, 8, 9], greedy(2, prompt_logprobs=1, logprobs=0))
        assert last.prompt_logprobs is not None
        first, *rest = last.prompt_logprobs
        assert first is None
        assert [list(entry or {}) for entry in rest] == [[6, 0], [7, 0], [8, 0], [9, 0]]
        assert rest[0] == {6: Logprob(-6 / 8, 7, "\x06"), 0: Logprob(0.0, 1, "\x00")}
        logprobs = last.outputs[0].logprobs
        assert logprobs is not None
        assert [len(entry) for entry in logprobs] == [1, 1]

    def test_preemption_in_the_middle_of_a_prompt_scores_nothing_twice(self) -> None:
        engine = make_engine(EchoExecutor(num_blocks=4), max_num_batched_tokens=4)
        engine.add_request("old", [1] * 7, greedy(20))
        engine.add_request("young", list(range(20)), greedy(3, prompt_logprobs=0))
        finals = {output.request_id: output for output in run_all(engine) if output.finished}
        metrics = finals["young"].metrics
        assert metrics is not None
        assert metrics.num_preemptions >= 1
        scores = finals["young"].prompt_logprobs
        assert scores is not None
        assert [list(entry or {}) for entry in scores] == [[], *([i] for i in range(1, 20))]

    def test_a_stream_gets_them_once(self) -> None:
        engine = make_engine()
        params = greedy(3, prompt_logprobs=0, output_kind=OutputKind.DELTA)
        engine.add_request("r", [5, 6], params)
        assert [output.prompt_logprobs is not None for output in run_all(engine)] == [
            True,
            False,
            False,
        ]
