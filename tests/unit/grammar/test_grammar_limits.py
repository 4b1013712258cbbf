# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.grammar.limits import GrammarLimits, check_depth, check_size, parse_json
from octavo.types.errors import InvalidRequest

LIMITS = GrammarLimits(text_bytes_max=1000, depth_max=5)


def test_sizes_count_bytes():
    check_size("é" * 500, LIMITS, param="field")
    with pytest.raises(InvalidRequest, match="1002 bytes; at most 1000") as error:
        check_size("é" * 501, LIMITS, param="field")
    assert error.value.param == "field"
    with pytest.raises(InvalidRequest, match="Unicode"):
        check_size("\ud800", LIMITS, param="field")


def test_depth_is_that_of_brackets():
    check_depth("([{}])" * 50, LIMITS, param="field")
    check_depth(")" * 50 + "(((((", LIMITS, param="field")
    with pytest.raises(InvalidRequest, match="nests 6 brackets"):
        check_depth("(" * 6, LIMITS, param="field")


def test_json_is_bounded_in_depth():
    assert parse_json('{"a":[[[[]]]]}', LIMITS, param="field") == {"a": [[[[]]]]}
    for text in ('{"a":[[[[[[1]]]]]]}', "[" * 400 + "]" * 400):
        with pytest.raises(InvalidRequest, match="nests too deeply"):
            parse_json(text, LIMITS, param="field")
    with pytest.raises(InvalidRequest, match="nests too deeply"):
        parse_json("[" * 100_000, GrammarLimits(), param="field")
    with pytest.raises(InvalidRequest, match="is not JSON"):
        parse_json("{", LIMITS, param="field")
