# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.types.errors import InvalidRequest
from octavo.types.param_checks import (
    as_logit_bias,
    as_tuple,
    check_above,
    check_integer,
    check_number,
    check_switch,
    shown,
)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 2.1, "1", True, None, 10**400])
def test_a_number_is_one_and_lies_between(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"field must be in \[0.0, 2.0\]") as refusal:
        check_number("field", value, 0.0, 2.0)
    assert refusal.value.param == "field"
    assert len(str(refusal.value)) < 120
    check_number("field", 0, 0.0, 2.0)
    check_number("field", 2.0, 0.0, 2.0)


def test_the_lower_end_may_be_open() -> None:
    check_above("field", 1e-300, 0.0, 1.0)
    with pytest.raises(InvalidRequest, match=r"field must be above 0\.0, got 0"):
        check_above("field", 0, 0.0, 1.0)


@pytest.mark.parametrize("value", [1.0, True, "1", -1, None])
def test_an_integer_is_one(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"field must be an integer in \[0, 7\], got"):
        check_integer("field", value, 0, 7)


def test_an_upper_end_that_is_the_types_is_not_told() -> None:
    with pytest.raises(InvalidRequest, match="field must be an integer >= 0, got -5"):
        check_integer("field", -5, 0, 2**31 - 1)


@pytest.mark.parametrize("value", [0, 1, "true", None])
def test_a_switch_is_a_boolean(value: object) -> None:
    with pytest.raises(InvalidRequest, match="field must be a boolean"):
        check_switch("field", value)


def test_one_string_is_a_list_of_it_and_a_map_is_none() -> None:
    assert as_tuple("field", "ab") == ("ab",)
    assert as_tuple("field", [1, 2]) == as_tuple("field", (1, 2)) == (1, 2)
    assert as_tuple("field", None) == ()
    with pytest.raises(InvalidRequest, match="field must be a list, got "):
        as_tuple("field", {"a": 1})


def test_biases_are_sorted_and_their_keys_are_ids() -> None:
    assert as_logit_bias({"10": 1, 9: -2.5}, 100) == ((9, -2.5), (10, 1.0))
    assert as_logit_bias(((10, 1.0),), 100) == ((10, 1.0),)
    for key in ("", " 1", "+1", "1.0", "\u0661", "1" * 11, 2**31, -1, 1.0, None):
        with pytest.raises(InvalidRequest, match="which is no token id"):
            as_logit_bias({key: 1}, 100)
    with pytest.raises(InvalidRequest, match=r"logit_bias\[7\] must be in \[-100, 100\], got 101"):
        as_logit_bias({"7": 101}, 100)


def test_a_long_value_is_shown_in_part() -> None:
    assert shown("x" * 100) == "'" + "x" * 59 + "..."
    assert shown(10**5000) == "a huge integer"
