# SPDX-License-Identifier: Apache-2.0
"""A part of two public suites, judged as the grammar library alone judges it."""

from __future__ import annotations

import pytest

from fakes import ByteTokenizer
from structured_score import LibrarySide, OctavoSide, is_as_good, read_suite, row, score


@pytest.mark.parametrize("name", ["json_schema_test_suite_sixth", "maskbench_some"])
def test_as_good_as_the_library(name, data_dir):
    cases = list(read_suite(data_dir / "structured" / f"{name}.jsonl"))
    ours = score(cases, OctavoSide(ByteTokenizer()))
    theirs = score(cases, LibrarySide(ByteTokenizer()))
    print(row(name, "octavo", ours))
    print(row(name, "library", theirs))
    assert is_as_good(ours, theirs)
    assert ours.num_compiled > len(cases) * 0.4
    assert ours.num_right > 10 * len(ours.wrong_accepts)


def test_a_judge_that_lets_everything_pass_is_not():
    class Generous(LibrarySide):
        def compiled(self, schema):
            return self

        def accepts(self, text):
            return True

    cases = [{"schema": {}, "tests": [{"data": 1, "valid": True}, {"data": 2, "valid": False}]}]
    library = LibrarySide(ByteTokenizer())
    strict = [{"schema": {"const": 1}, "tests": cases[0]["tests"]}]
    assert not is_as_good(score(strict, Generous(ByteTokenizer())), score(strict, library))
    assert is_as_good(score(strict, OctavoSide(ByteTokenizer())), score(strict, library))
