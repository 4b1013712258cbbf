# SPDX-License-Identifier: Apache-2.0
"""A request for tests to which it does not matter what is asked."""

from __future__ import annotations

from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams


def plain_request() -> Request:
    """Three tokens of prompt and at most four of answer."""
    return Request(
        request_id="r",
        prompt=None,
        prompt_token_ids=(1, 2, 3),
        params=SamplingParams(),
        max_tokens=4,
        eos_token_id=None,
        stop_token_ids=frozenset(),
    )
