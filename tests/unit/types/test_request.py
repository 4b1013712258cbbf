# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from octavo.types.errors import InvalidRequest
from octavo.types.request import ServiceClass, Standing
from requestkit import plain_request


def test_a_request_is_frozen_and_knows_its_longest_length() -> None:
    request = plain_request()
    assert request.num_tokens_max == 7
    with pytest.raises(FrozenInstanceError):
        request.max_tokens = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 2**63),
        ("priority", -(2**63) - 1),
        ("priority", True),
        ("priority", 1.0),
        ("service_class", "urgent"),
        ("service_class", None),
        ("user", "x" * 1025),
        ("user", 7),
        ("cache_salt", None),
        ("cache_salt", b"x"),
    ],
)
def test_a_bad_standing_names_its_field(field, value):
    with pytest.raises(InvalidRequest) as refused:
        Standing(**{field: value})
    assert refused.value.param == field
    assert len(str(refused.value)) < 200


def test_a_standing_takes_the_name_of_a_class():
    assert Standing(service_class="batch").service_class is ServiceClass.BATCH
    assert Standing() == Standing(service_class="standard", priority=0, user="", cache_salt="")
