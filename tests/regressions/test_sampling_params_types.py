# SPDX-License-Identifier: Apache-2.0
"""Every wrong value is a short ``InvalidRequest`` that names its field, and no other exception."""

from __future__ import annotations

import pytest

from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import SamplingParams

HUGE = 10**5000  # too large for a float, and for its own repr


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", 5),
        ("stop", {"a": 1}),
        ("stop", [5]),
        ("stop_token_ids", 5),
        ("keep_special_ids", 5),
        ("keep_special_ids", [-1]),
        ("stop_token_ids", {"1": 2}),
        ("temperature", HUGE),
        ("temperature", -HUGE),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", HUGE),
        ("min_p", "0.5"),
        ("seed", HUGE),
        ("max_tokens", HUGE),
        ("max_tokens", "x" * 10**6),
        ("logprobs", True),
        ("ignore_eos", "no"),
        ("skip_special_tokens", None),
        ("detokenize", 1),
        ("include_stop_str_in_output", []),
        ("output_kind", 5),
    ],
    ids=lambda part: part[:20] if isinstance(part, str) else type(part).__name__,
)
def test_a_wrong_value_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field} ") as refusal:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert refusal.value.param == field
    assert len(str(refusal.value)) < 200
