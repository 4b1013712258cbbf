# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from fakes import ByteTokenizer
from octavo.engine.admission import Admission, AdmissionLimits, row_sampling
from octavo.types.errors import InvalidRequest, PromptTooLong
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams


def admit(
    prompt: object = "abc", *, max_model_len: int = 20, num_slots: int = 64, **params: object
) -> Request:
    admission = Admission(ByteTokenizer(), AdmissionLimits(max_model_len, num_slots))
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    return admission.admit(prompt, sampling, request_id="r")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("abc", "abc"),
        ([97, 98, 99], None),
        ((97, 98, 99), None),
        ({"prompt": "abc"}, "abc"),
        ({"prompt_token_ids": [97, 98, 99]}, None),
        ({"prompt": "shown", "prompt_token_ids": [97, 98, 99]}, "shown"),
    ],
)
def test_every_shape_of_prompt(prompt: object, text: str | None) -> None:
    request = admit(prompt)
    assert (request.prompt_token_ids, request.prompt) == ((97, 98, 99), text)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "empty"),
        ([], "empty"),
        ({}, "prompt or prompt_token_ids"),
        ({"prompt": 5}, "string"),
        (5, "text or a sequence"),
        ([1, "a"], "text or a sequence"),
        ([1, True], "text or a sequence"),
        (b"abc", "text or a sequence"),
        ([1, 259], "259 is outside the vocabulary of 259"),
        ([-1, 3], "-1 is outside"),
    ],
)
def test_bad_prompts_name_the_prompt(prompt: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refusal:
        admit(prompt)
    assert refusal.value.param == "prompt"


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(PromptTooLong, match=r"20 tokens.*20 fit the model's context"):
        admit([1] * 20)
    with pytest.raises(PromptTooLong, match=r"16 tokens.*16 fit the KV cache"):
        admit([1] * 16, num_slots=16)
    assert admit([1] * 19).max_tokens == 1
    assert admit([1] * 15, num_slots=16).max_tokens == 1


@pytest.mark.parametrize(
    ("max_tokens", "num_slots", "expected"), [(5, 64, 5), (50, 64, 17), (None, 64, 17), (50, 8, 5)]
)
def test_max_tokens_is_clipped_to_what_fits(
    max_tokens: int | None, num_slots: int, expected: int
) -> None:
    request = admit("abc", num_slots=num_slots, max_tokens=max_tokens)
    assert (request.max_tokens, request.num_tokens_max) == (expected, 3 + expected)


def test_more_samples_than_one_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="n must be 1") as refusal:
        admit(n=2)
    assert refusal.value.param == "n"


def test_stop_ids_must_be_in_the_vocabulary() -> None:
    with pytest.raises(InvalidRequest, match="stop token id 259") as refusal:
        admit(stop_token_ids=[259])
    assert refusal.value.param == "stop_token_ids"


def test_the_primary_end_is_silent_and_the_others_are_named() -> None:
    request = admit(stop_token_ids=[65])
    assert (request.eos_token_id, request.stop_token_ids) == (257, {65, 258})
    request = admit(stop_token_ids=[65, 257], ignore_eos=True)
    assert (request.eos_token_id, request.stop_token_ids) == (None, {65, 257})


def test_sampler_settings_follow_the_parameters() -> None:
    request = admit(temperature=0.5, top_p=0.9, top_k=3, min_p=0.1)
    sampling = row_sampling(request, seed=7)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 3)
    assert (sampling.min_p, sampling.seed, sampling.sample_idx) == (0.1, 7, 0)
    assert (sampling.num_logprobs, sampling.banned_until, sampling.banned_ids) == (None, 0, ())


def test_almost_zero_temperature_opens_a_greedy_row() -> None:
    assert row_sampling(admit(temperature=1e-6), seed=1).temperature == 0.0


@pytest.mark.parametrize(
    ("logprobs", "prompt_logprobs", "expected"),
    [(None, None, None), (0, None, 0), (None, 2, 2), (5, 2, 5), (1, 4, 4)],
)
def test_one_top_k_serves_answer_and_prompt(
    logprobs: int | None, prompt_logprobs: int | None, expected: int | None
) -> None:
    request = admit(logprobs=logprobs, prompt_logprobs=prompt_logprobs)
    assert row_sampling(request, seed=0).num_logprobs == expected


def test_min_tokens_bans_every_end_until_that_position() -> None:
    sampling = row_sampling(admit(min_tokens=4, stop_token_ids=[65]), seed=0)
    assert (sampling.banned_until, sampling.banned_ids) == (7, (65, 257, 258))
    sampling = row_sampling(admit(min_tokens=4, ignore_eos=True), seed=0)
    assert (sampling.banned_until, sampling.banned_ids) == (0, ())
