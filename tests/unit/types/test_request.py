# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams


def test_a_request_is_frozen_and_knows_its_longest_length() -> None:
    request = Request(
        request_id="r",
        prompt=None,
        prompt_token_ids=(1, 2, 3),
        params=SamplingParams(),
        max_tokens=4,
        eos_token_id=None,
        stop_token_ids=frozenset(),
    )
    assert request.num_tokens_max == 7
    with pytest.raises(FrozenInstanceError):
        request.max_tokens = 5  # type: ignore[misc]
