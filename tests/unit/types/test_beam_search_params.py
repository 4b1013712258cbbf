# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import OnOverflow, SamplingParams


def test_a_search_in_the_words_of_sampling():
    sampling = SamplingParams(
        n=2, best_of=5, max_tokens=7, timeout_s=3.0, on_overflow=OnOverflow.TRUNCATE_LEFT
    )
    search = BeamSearchParams.like(sampling, length_penalty=0.5, early_stopping="never")
    assert (search.beam_width, search.num_answers, search.max_tokens) == (5, 2, 7)
    assert (search.length_penalty, search.early_stopping, search.timeout_s) == (0.5, "never", 3.0)
    samples = search.as_samples
    assert (samples.num_samples, samples.n, samples.on_overflow) == (5, 2, sampling.on_overflow)
    assert BeamSearchParams(beam_width=3).num_answers == 3


@pytest.mark.parametrize(
    "ignored", [{"top_p": 0.5}, {"stop": "x"}, {"logprobs": 1}, {"min_tokens": 2}, {"top_k": 3}]
)
def test_what_a_search_would_not_heed_is_refused(ignored):
    with pytest.raises(InvalidRequest, match="no effect on a beam search") as refused:
        BeamSearchParams.like(SamplingParams(**ignored))
    assert refused.value.param in ignored


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 5),
        ("n", 0),
        ("beam_width", None),
        ("beam_width", 65),
        ("max_tokens", 0),
        ("timeout_s", -1),
        ("on_overflow", "never"),
        ("early_stopping", 1),
        ("length_penalty", float("nan")),
    ],
)
def test_a_bad_value_names_its_field(field, value):
    with pytest.raises(InvalidRequest) as refused:
        BeamSearchParams(**{"beam_width": 4, field: value})
    assert refused.value.param == field
