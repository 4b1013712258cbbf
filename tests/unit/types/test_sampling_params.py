# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import OnOverflow, OutputKind, SamplingParams


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
