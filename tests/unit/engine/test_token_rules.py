# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence

import pytest

from fakes import ByteTokenizer
from octavo.engine.admission import Admission, row_sampling
from octavo.engine.overflow import AdmissionLimits
from octavo.engine.token_rules import bad_word_ids
from octavo.types.errors import InvalidRequest
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import RowSampling


def admit(**params: object) -> Request:
    admission = Admission(ByteTokenizer(), AdmissionLimits(40, 64))
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    return admission.admit("abc", sampling, request_id="r")


WORDS = {"cat": 300, " cat": 301, " sat": 302}


class WordTokenizer(ByteTokenizer):
    """Words and spaced words have ids of their own, as in most vocabularies; else bytes."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        assert not add_special_tokens
        return [WORDS[text]] if text in WORDS else list(text.encode())


@pytest.mark.parametrize(
    ("words", "sequences"),
    [
        (["cat"], [(300,), (301,)]),
        ([" cat"], [(300,), (301,)]),
        (["cat", " cat"], [(300,), (301,)]),
        (["sat"], [(115, 97, 116)]),  # another length: the bare spelling stands after the space
        (["ab"], [(97, 98)]),
        (["  "], [(32, 32)]),
        ([], []),
    ],
)
def test_a_word_is_spelt_alone_and_after_a_space(
    words: list[str], sequences: Sequence[tuple[int, ...]]
) -> None:
    assert bad_word_ids(words, WordTokenizer()) == tuple(sequences)


@pytest.mark.parametrize("words", [["x" * 1025], [chr(97 + i) * 60 for i in range(20)]])
def test_long_lists_of_bad_words_are_refused_by_name(words: list[str]) -> None:
    with pytest.raises(InvalidRequest, match="at most 128 and 1024 are taken") as refusal:
        bad_word_ids(words, ByteTokenizer())
    assert refusal.value.param == "bad_words"


class UnreadTokenizer(ByteTokenizer):
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        raise AssertionError("this text should not have been read")


def test_what_could_never_be_so_few_tokens_is_not_tokenised() -> None:
    with pytest.raises(InvalidRequest, match="66000 characters; at most 65536") as refusal:
        bad_word_ids(["x" * 33_000] * 2, UnreadTokenizer())
    assert refusal.value.param == "bad_words"


def test_no_more_ids_are_allowed_than_there_are() -> None:
    vocab_size = ByteTokenizer().vocab_size
    assert admit(allowed_token_ids=[5] * vocab_size).params.allowed_token_ids
    with pytest.raises(InvalidRequest, match="more than the vocabulary") as refusal:
        admit(allowed_token_ids=[5] * (vocab_size + 1))
    assert refusal.value.param == "allowed_token_ids"


@pytest.mark.parametrize(
    ("param", "fields"),
    [
        ("stop_token_ids", {"stop_token_ids": [259]}),
        ("logit_bias", {"logit_bias": {"259": 1}}),
        ("allowed_token_ids", {"allowed_token_ids": [3, 259]}),
        ("allowed_token_ids", {"allowed_token_ids": [257, 258], "min_tokens": 1}),
        ("allowed_token_ids", {"allowed_token_ids": [97, 98], "bad_words": ["a", "cb"]}),
        ("stop_token_ids", {"stop_token_ids": [*range(259)], "min_tokens": 1}),
    ],
)
def test_ids_that_cannot_be_had_are_refused_by_name(param: str, fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        admit(**fields)
    assert refusal.value.param == param
    assert param.split("_")[0] in str(refusal.value)


def test_what_leaves_one_token_is_taken() -> None:
    assert admit(allowed_token_ids=[257, 258, 97], min_tokens=1).params.min_tokens == 1
    assert admit(stop_token_ids=[*range(259)]).max_tokens == 16


def test_every_setting_reaches_the_row() -> None:
    request = admit(
        temperature=0.5,
        presence_penalty=-1,
        frequency_penalty=2,
        repetition_penalty=1.5,
        logit_bias={"7": 100, 3: -0.5},
        bad_words=["no"],
        allowed_token_ids=[7, 3, 97],
        typical_p=0.5,
        top_n_sigma=2,
        logprobs_mode="processed_logprobs",
    )
    assert row_sampling(request, seed=4) == RowSampling(
        temperature=0.5,
        seed=4,
        presence_penalty=-1,
        frequency_penalty=2,
        repetition_penalty=1.5,
        logit_bias=((3, -0.5), (7, 100.0)),
        bad_words=((110, 111),),
        allowed_ids=(7, 3, 97),
        typical_p=0.5,
        top_n_sigma=2,
        has_processed_logprobs=True,
    )


def test_settings_that_are_off_leave_a_row_as_it_was() -> None:
    off = {"presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {}, "bad_words": []}
    sampling = row_sampling(admit(**off, typical_p=1, top_n_sigma=-1), seed=0)
    assert sampling == row_sampling(admit(), seed=0)
    assert not sampling.needs_history
