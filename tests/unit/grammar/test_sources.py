# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from grammarkit import accepts, compiled
from octavo.types.errors import InvalidRequest

PAIR = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TAGS = {
    "structures": [
        {"begin": "<fn=add>", "schema": PAIR, "end": "</fn>"},
        {"begin": "<fn=sub>", "schema": {"type": "integer"}, "end": "</fn>"},
    ],
    "triggers": ["<fn="],
}


def test_json_schema():
    grammar = compiled(json=PAIR)
    assert accepts(grammar, '{"a":1}')
    assert accepts(grammar, '{ "a" : 1, "b": [null] }')
    assert not accepts(grammar, '{"b":1}')
    assert not accepts(grammar, ' {"a":1}')


def test_whitespace_is_bounded():
    grammar = compiled(json=PAIR)
    assert accepts(grammar, '{"a":' + " " * 32 + "1}")
    assert not accepts(grammar, '{"a":' + " " * 33 + "1}")
    loose = {**PAIR, "x-guidance": {"whitespace_pattern": "[ ]+", "lenient": True}}
    assert not accepts(compiled(json=loose), '{"a":' + " " * 33 + "1}")


def test_without_any_whitespace():
    grammar = compiled(json=PAIR, disable_any_whitespace=True)
    assert accepts(grammar, '{"a":1}')
    assert not accepts(grammar, '{"a": 1}')


def test_json_object():
    grammar = compiled(json_object=True)
    assert accepts(grammar, '{"any":[1,{"thing":null}]}')
    assert not accepts(grammar, "[1]")


def test_keywords_that_nobody_has_implemented_are_refused_and_not_ignored():
    for schema in (
        {**PAIR, "unevaluatedProperties": False},
        {**PAIR, "unevaluatedProperties": False, "x-guidance": {"lenient": True}},
    ):
        with pytest.raises(InvalidRequest, match="unevaluatedProperties"):
            compiled(json=schema)


def test_numbers_of_any_size_are_no_crash():
    assert accepts(compiled(json={"enum": [2**70, 5]}), "5")
    with pytest.raises(InvalidRequest, match="integer range"):
        compiled(json={"type": "integer", "minimum": -(2**70)})


def test_choice():
    words = ["yes", "yes, but", 'quote " and \\ and \n', "é🌍"]
    grammar = compiled(choice=words)
    for word in words:
        assert accepts(grammar, word), word
    assert not accepts(grammar, "yes,")
    with pytest.raises(InvalidRequest, match="at most 4096"):
        compiled(choice=[f"w{i}" for i in range(5000)])


def test_many_choices():
    grammar = compiled(choice=[f"word {i}" for i in range(4096)])
    assert accepts(grammar, "word 4095")
    assert not accepts(grammar, "word 4096")


def test_regex_and_lark():
    assert accepts(compiled(regex=r"\d{3}-[xyz]"), "123-z")
    assert not accepts(compiled(regex=r"\d{3}-[xyz]"), "123-zz")
    grammar = compiled(grammar='start: greeting NAME\ngreeting: "hi " | "yo "\nNAME: /[A-Z][a-z]+/')
    assert accepts(grammar, "yo Ann")
    assert not accepts(grammar, "Ann")


def test_structural_tag():
    grammar = compiled(structural_tag=TAGS)
    assert accepts(grammar, "no call at all, 1 < 2")
    assert accepts(grammar, 'so: <fn=add>{"a":5}</fn> and <fn=sub>-3</fn>.')
    assert not accepts(grammar, "so: <fn=sub>{}</fn>")
    assert not accepts(grammar, 'so: <fn=mul>{"a":5}</fn>')
    assert not accepts(grammar, "so: <fn=sub>3")


@pytest.mark.parametrize(
    "value",
    [
        {"structures": [], "triggers": ["<"]},
        {"structures": [{"begin": "<a>", "end": ""}], "triggers": ["<b"]},
        {"structures": [{"begin": 1, "end": ""}], "triggers": ["<b"]},
        {"type": "structural_tag"},
        {},
    ],
)
def test_a_structural_tag_of_another_shape_is_refused(value):
    with pytest.raises(InvalidRequest) as error:
        compiled(structural_tag=json.dumps(value))
    assert error.value.param == "structured_outputs.structural_tag"


def test_structures_times_triggers_are_bounded():
    short = {"begin": "a", "end": "b"}
    triggers = [f"x{i}" for i in range(300)]
    for count, words in ((300, ["a"]), (1, ["a", *triggers])):
        with pytest.raises(InvalidRequest, match="at most 256 of either"):
            compiled(structural_tag=json.dumps({"structures": [short] * count, "triggers": words}))
    tag = {"begin": "a" * 200, "schema": {}, "end": "b" * 1000}
    every = [tag["begin"][: i + 1] for i in range(200)]  # each structure begins with each of them
    with pytest.raises(InvalidRequest, match="more than 262144 characters"):
        compiled(structural_tag=json.dumps({"structures": [tag] * 50, "triggers": every}))
