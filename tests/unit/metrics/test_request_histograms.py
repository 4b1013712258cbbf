# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from octavo.metrics.request_histograms import RequestHistograms


def ended(*outputs: int, **changes: Any) -> Any:
    """A group that had 8 prompt tokens, 3 of them cached; times in quarters of a second."""
    params = SimpleNamespace(n=len(outputs))
    request = SimpleNamespace(prompt_token_ids=(1,) * 8, max_tokens=100, params=params)
    group = SimpleNamespace(
        request=request,
        sequences=[SimpleNamespace(num_outputs=num) for num in outputs],
        first_scheduled_time=1.0,
        first_token_time=1.25,
        last_token_time=3.25,
        num_cached_tokens=3,
        num_preemptions=2,
    )
    vars(group).update(changes)
    return group


def test_a_request_is_counted_once_in_each():
    histograms = RequestHistograms()
    histograms.ended(ended(5, 4))
    taken = histograms.snapshot()
    assert {name: one.sum for name, one in taken.items()} == {
        "prefill_s": 0.25,
        "decode_s": 2.0,
        "inference_s": 2.25,
        "s_per_output_token": 0.5,
        "prompt_tokens": 8.0,
        "computed_prompt_tokens": 5.0,
        "output_tokens": 9.0,
        "output_tokens_max": 5.0,
        "max_tokens": 100.0,
        "n": 2.0,
        "preemptions": 2.0,
    }
    assert {one.count for one in taken.values()} == {1}


def test_one_token_has_no_time_per_token():
    histograms = RequestHistograms()
    histograms.ended(ended(1))
    assert histograms.snapshot()["s_per_output_token"].count == 0
    assert histograms.snapshot()["decode_s"].count == 1


@pytest.mark.parametrize("name", ["first_scheduled_time", "first_token_time", "last_token_time"])
def test_a_request_without_a_token_is_left_out(name):
    histograms = RequestHistograms()
    histograms.ended(ended(0, **{name: None}))
    assert {one.count for one in histograms.snapshot().values()} == {0}


def test_a_snapshot_is_of_its_moment_and_made_once():
    histograms = RequestHistograms()
    before = histograms.snapshot()
    assert histograms.snapshot() is before
    histograms.ended(ended(5))
    assert before["n"].count == 0
    assert histograms.snapshot()["n"].count == 1
