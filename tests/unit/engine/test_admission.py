# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from fakes import ByteTokenizer
from octavo.engine.admission import Admission, PromptDict, row_sampling
from octavo.engine.overflow import AdmissionLimits
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest, PromptTooLong
from octavo.types.request import Request, ServiceClass, Standing
from octavo.types.sampling_params import OnOverflow, SamplingParams


def admit(
    prompt: object = "abc",
    *,
    max_model_len: int = 20,
    num_slots: int = 64,
    limits: AdmissionLimits | None = None,
    **params: object,
) -> Request:
    limits = limits or AdmissionLimits(max_model_len, num_slots)
    admission = Admission(ByteTokenizer(), limits)
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


def test_more_samples_than_may_run_at_once_are_refused_by_name() -> None:
    for fields in ({"n": 5}, {"n": 2, "best_of": 5}):
        with pytest.raises(InvalidRequest, match="at most 4") as refusal:
            admit(limits=AdmissionLimits(20, 800, 8, 4), **fields)
        assert refusal.value.param == [*fields][-1]
    assert admit(limits=AdmissionLimits(20, 800, 8, 4), n=4).num_samples == 4


def test_samples_whose_tails_cannot_fit_beside_the_prompt_are_refused_with_the_numbers() -> None:
    limits = AdmissionLimits(1000, 64, 8)  # 8 blocks
    with pytest.raises(PromptTooLong, match=r"3 shared blocks and at least 6 more.* 8 blocks of 8"):
        admit([1] * 30, limits=limits, n=6)
    request = admit([1] * 30, limits=limits, n=5, max_tokens=None)
    assert request.max_tokens == 2  # 3 shared, 5 tails of one block: 32 - 30


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("truncate_left", [256, *range(17, 30)]),
        ("truncate_middle", [256, *range(1, 7), *range(23, 30)]),
        ("truncate_right", [256, *range(1, 14)]),
    ],
)
def test_a_prompt_that_is_too_long_is_cut_as_asked(policy: str, kept: list[int]) -> None:
    request = admit([256, *range(1, 30)], on_overflow=policy, max_tokens=6)
    assert list(request.prompt_token_ids) == kept
    assert (request.num_truncated_tokens, request.max_tokens) == (16, 6)


def test_a_prompt_that_fits_is_never_cut() -> None:
    request = admit([1] * 19, on_overflow="truncate_left", max_tokens=6)
    assert (len(request.prompt_token_ids), request.num_truncated_tokens) == (19, 0)


def test_cutting_cannot_help_where_the_tails_alone_fill_the_pool() -> None:
    with pytest.raises(PromptTooLong):
        admit([1] * 30, limits=AdmissionLimits(1000, 16, 8), n=3, on_overflow="truncate_left")


def test_choosing_the_best_needs_logprobs_and_nothing_else_does() -> None:
    assert row_sampling(admit(n=1, best_of=3), seed=0).num_logprobs == 0
    assert row_sampling(admit(n=3, best_of=3), seed=0).num_logprobs is None


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


class TestStrictLength:
    """A ``max_tokens`` beyond the room is clipped, or refused where that was asked for."""

    def admission(self, **limits: int) -> Admission:
        return Admission(ByteTokenizer(), AdmissionLimits(20, 64, **limits))

    def test_it_is_refused_with_the_numbers(self) -> None:
        params = SamplingParams(max_tokens=18)
        with pytest.raises(
            PromptTooLong, match=r"\(18\) is above the 17 .* of 3; .* hold 20"
        ) as no:
            self.admission().admit("abc", params, request_id="r", clips_max_tokens=False)
        assert no.value.param == "max_tokens"
        assert self.admission().admit("abc", params, request_id="r").max_tokens == 17

    @pytest.mark.parametrize(
        "params",
        [
            SamplingParams(max_tokens=17),
            SamplingParams(max_tokens=None),
            SamplingParams(max_tokens=18, on_overflow=OnOverflow.TRUNCATE_LEFT),
        ],
    )
    def test_what_fits_or_may_be_cut_passes(self, params: SamplingParams) -> None:
        request = self.admission().admit("abc", params, request_id="r", clips_max_tokens=False)
        assert request.max_tokens == 17

    def test_samples_share_the_room(self) -> None:
        admission = self.admission(block_size=8)
        params = SamplingParams(n=4, max_tokens=17)
        with pytest.raises(PromptTooLong, match="left for each of 4 samples"):
            admission.admit("abc", params, request_id="r", clips_max_tokens=False)


class TestStanding:
    def test_it_is_in_the_request(self) -> None:
        standing = Standing(priority=3, service_class=ServiceClass.BATCH, user="u", cache_salt="s")
        admission = Admission(ByteTokenizer(), AdmissionLimits(20, 64))
        request = admission.admit("abc", SamplingParams(), request_id="r", standing=standing)
        assert (request.priority, request.service_class) == (3, ServiceClass.BATCH)
        assert (request.user, request.cache_salt) == ("u", "s")
        salted: PromptDict = {"prompt": "abc", "cache_salt": "t"}
        own = admission.admit(salted, SamplingParams(), request_id="r", standing=standing)
        assert (own.user, own.cache_salt) == ("u", "t")

    def test_a_priority_that_nobody_looks_at_is_refused(self) -> None:
        admission = Admission(ByteTokenizer(), AdmissionLimits(20, 64, has_priorities=False))
        with pytest.raises(InvalidRequest, match="unless scheduling_policy is priority") as refused:
            admission.admit("abc", SamplingParams(), request_id="r", standing=Standing(priority=-1))
        assert refused.value.param == "priority"

    def test_a_beam_search_is_admitted_by_its_width(self) -> None:
        admission = Admission(ByteTokenizer(), AdmissionLimits(20, 64, num_samples_max=4))
        search = BeamSearchParams(beam_width=4, n=2)
        request = admission.admit("abc", search, request_id="r")
        assert (request.beam, request.params.n, request.num_samples) == (search, 2, 4)
        with pytest.raises(InvalidRequest, match="beam_width must be at most 4") as refused:
            admission.admit("abc", BeamSearchParams(beam_width=5), request_id="r")
        assert refused.value.param == "beam_width"


def test_an_answer_that_could_not_begin_is_refused() -> None:
    """``min_tokens`` bans every stop token at first; one other token must be left."""
    vocab_size = ByteTokenizer.vocab_size
    everything = tuple(range(vocab_size))
    with pytest.raises(InvalidRequest, match="leave no token of") as refused:
        admit(min_tokens=1, stop_token_ids=everything)
    assert refused.value.param == "stop_token_ids"
    with pytest.raises(InvalidRequest, match="leave no token of"):  # with the model's own: all
        admit(min_tokens=1, stop_token_ids=everything[:257])
    admit(min_tokens=1, stop_token_ids=everything[:256])
    admit(min_tokens=1, stop_token_ids=everything[1:], ignore_eos=True)
    admit(min_tokens=0, stop_token_ids=everything)
