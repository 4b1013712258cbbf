# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

import octavo


def test_every_public_name_can_be_had():
    for name in octavo.__all__:
        assert getattr(octavo, name) is not None
    assert set(octavo.__all__) <= set(dir(octavo))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = octavo.nope


def test_public_names_are_the_objects_of_their_modules():
    from octavo.llm import LLM
    from octavo.types.sampling_params import SamplingParams

    assert octavo.LLM is LLM
    assert octavo.SamplingParams is SamplingParams
