# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import OnOverflow, OutputKind, SamplingParams
from octavo.types.structured_outputs import StructuredOutputs


def test_best_of_counts_the_samples_and_n_those_given() -> None:
    assert (SamplingParams(n=2).num_samples, SamplingParams(n=2).picks_best) == (2, False)
    best = SamplingParams(n=2, best_of=5)
    assert (best.num_samples, best.picks_best) == (5, True)
    assert not SamplingParams(n=2, best_of=2).picks_best


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("n", {"n": 0}),
        ("n", {"n": 2, "temperature": 0}),
        ("best_of", {"best_of": 2, "temperature": 0}),
        ("best_of", {"n": 3, "best_of": 2}),
        ("best_of", {"best_of": 1.5}),
        ("best_of", {"n": 2, "best_of": 3, "output_kind": OutputKind.DELTA}),
        ("on_overflow", {"on_overflow": "truncate"}),
        ("timeout_s", {"timeout_s": 0}),
        ("queue_timeout_s", {"queue_timeout_s": float("inf")}),
        ("ttft_timeout_s", {"ttft_timeout_s": "1"}),
        ("presence_penalty", {"presence_penalty": 2.1}),
        ("frequency_penalty", {"frequency_penalty": float("nan")}),
        ("repetition_penalty", {"repetition_penalty": 0}),
        ("repetition_penalty", {"repetition_penalty": float("inf")}),
        ("typical_p", {"typical_p": 0}),
        ("typical_p", {"typical_p": 1.5}),
        ("top_n_sigma", {"top_n_sigma": -0.5}),
        ("logit_bias", {"logit_bias": {"5": 101}}),
        ("logit_bias", {"logit_bias": {"5": float("nan")}}),
        ("logit_bias", {"logit_bias": {"5": True}}),
        ("logit_bias", {"logit_bias": {"five": 1}}),
        ("logit_bias", {"logit_bias": {"-5": 1}}),
        ("logit_bias", {"logit_bias": {"9" * 5000: 1}}),
        ("logit_bias", {"logit_bias": {"5": 1, 5: 2}}),
        ("logit_bias", {"logit_bias": [5]}),
        ("logit_bias", {"logit_bias": "5"}),
        ("bad_words", {"bad_words": [""]}),
        ("bad_words", {"bad_words": [5]}),
        ("bad_words", {"bad_words": ["a"] * 129}),
        ("bad_words", {"bad_words": {"a": 1}}),
        ("allowed_token_ids", {"allowed_token_ids": []}),
        ("allowed_token_ids", {"allowed_token_ids": [-1]}),
        ("allowed_token_ids", {"allowed_token_ids": [True]}),
        ("allowed_token_ids", {"allowed_token_ids": 5}),
        ("logprobs_mode", {"logprobs_mode": "raw_logits"}),
        ("logprobs_mode", {"logprobs_mode": ["raw_logprobs"]}),
        ("structured_outputs", {"structured_outputs": {"json_object": True}}),
    ],
)
def test_a_bad_value_is_refused_by_name(param: str, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        SamplingParams(**fields)  # type: ignore[arg-type]
    assert refusal.value.param == param


def test_a_stream_may_have_best_of_when_it_is_n() -> None:
    params = SamplingParams(n=2, best_of=2, output_kind=OutputKind.DELTA)
    assert not params.picks_best


def test_an_overflow_policy_may_be_spelt_by_name() -> None:
    params = SamplingParams(on_overflow="truncate_left")  # type: ignore[arg-type]
    assert params.on_overflow is OnOverflow.TRUNCATE_LEFT
    assert params.clone(n=1).on_overflow is OnOverflow.TRUNCATE_LEFT


def test_lists_and_maps_are_taken_in_every_spelling_and_kept_in_one() -> None:
    params = SamplingParams(
        logit_bias={"50256": -100, 7: 1},  # type: ignore[arg-type]
        bad_words="word",  # type: ignore[arg-type]
        allowed_token_ids=[3, 1],  # type: ignore[arg-type]
        top_n_sigma=-1,
    )
    assert params.logit_bias == ((7, 1.0), (50256, -100.0))
    assert params.bad_words == ("word",)
    assert params.allowed_token_ids == (3, 1)
    assert params.top_n_sigma == 0
    assert params.clone(n=1) == params
    assert hash(params.clone(n=1)) == hash(params)
    nothing = SamplingParams(logit_bias=None, bad_words=None)  # type: ignore[arg-type]
    assert nothing == SamplingParams()


def test_an_answer_may_be_asked_to_have_a_form() -> None:
    wish = StructuredOutputs(json_object=True)
    assert SamplingParams(structured_outputs=wish).structured_outputs is wish
