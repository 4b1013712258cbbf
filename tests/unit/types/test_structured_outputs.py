# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import SamplingParams
from octavo.types.structured_outputs import FORMS, StructuredOutputs


@pytest.mark.parametrize(
    ("fields", "form", "value"),
    [
        ({"json": '{"type": "null"}'}, "json", '{"type": "null"}'),
        ({"json": {"type": "null"}}, "json", '{"type": "null"}'),
        ({"json": True}, "json", "true"),
        ({"json_object": True}, "json_object", True),
        ({"regex": "a+"}, "regex", "a+"),
        ({"choice": ["a", "b"]}, "choice", ("a", "b")),
        ({"choice": None, "regex": "a"}, "regex", "a"),
        ({"grammar": "start: X"}, "grammar", "start: X"),
        ({"structural_tag": {"triggers": []}}, "structural_tag", '{"triggers": []}'),
    ],
)
def test_each_form(fields, form, value):
    wish = StructuredOutputs(**fields)
    assert (wish.form, getattr(wish, form)) == (form, value)
    assert hash(wish) == hash(StructuredOutputs(**fields))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "structured_outputs"),
        ({"json": "{}", "regex": "a"}, "structured_outputs"),
        ({"closes_in_time": True}, "structured_outputs"),
        ({"json": 3}, "structured_outputs.json"),
        ({"json": {"a": {1, 2}}}, "structured_outputs.json"),
        ({"regex": 3}, "structured_outputs.regex"),
        ({"choice": "abc"}, "structured_outputs.choice"),
        ({"choice": ("a", 1)}, "structured_outputs.choice"),
        ({"json_object": 1}, "structured_outputs.json_object"),
        ({"regex": "a", "closes_in_time": "yes"}, "structured_outputs.closes_in_time"),
    ],
)
def test_a_bad_wish_names_its_field(fields, param):
    with pytest.raises(InvalidRequest) as error:
        StructuredOutputs(**fields)
    assert error.value.param == param


def test_every_form_is_a_field():
    assert {*FORMS} < {*StructuredOutputs.__dataclass_fields__}


def test_sampling_params_take_a_wish_and_nothing_like_one():
    wish = StructuredOutputs(regex="a+")
    assert SamplingParams(structured_outputs=wish).structured_outputs == wish
    with pytest.raises(InvalidRequest, match="must be StructuredOutputs") as error:
        SamplingParams(structured_outputs={"regex": "a+"})
    assert error.value.param == "structured_outputs"


@pytest.mark.parametrize("fields", [{"logprobs": 0}, {"best_of": 3}])
def test_what_needs_the_logprob_of_each_token_cannot_be_closed(fields):
    wish = StructuredOutputs(regex="a+", closes_in_time=True)
    with pytest.raises(InvalidRequest, match="closes_in_time") as error:
        SamplingParams(structured_outputs=wish, **fields)
    assert error.value.param == next(iter(fields))
