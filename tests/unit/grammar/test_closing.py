# SPDX-License-Identifier: Apache-2.0
"""Whatever is said, and wherever the tokens end, the text is complete."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

from fakes import ByteTokenizer
from grammarkit import accepts, compiled, random_answer
from octavo.grammar.closing import Closer
from octavo.grammar.compiler import GrammarCompiler
from octavo.types.errors import InvalidRequest

ADDRESS = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "pattern": "^[A-Z][a-z]+ [0-9]{1,3}$"},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/address"}]},
    },
    "required": ["street", "next"],
}
SCHEMAS: dict[str, dict[str, object]] = {
    "flat": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3},
            "age": {"type": "integer", "minimum": 10, "maximum": 120},
            "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 2},
            "home": {"$ref": "#/$defs/address"},
        },
        "required": ["name", "age", "tags"],
        "additionalProperties": False,
        "$defs": {"address": ADDRESS},
    },
    "recursive": {"$ref": "#/$defs/address", "$defs": {"address": ADDRESS}},
    "a large way beside a small one": {
        "anyOf": [
            {"type": "null"},
            {
                "type": "object",
                "properties": {f"p{i}": {"type": "string", "minLength": 20} for i in range(5)},
                "required": [f"p{i}" for i in range(5)],
            },
        ]
    },
    "anything": {},
    "matrix": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    },
    "dates": {
        "type": "object",
        "properties": {"day": {"type": "string", "format": "date"}, "ok": {"const": True}},
        "required": ["day", "ok"],
    },
}


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(ByteTokenizer())


@pytest.mark.parametrize("name", SCHEMAS)
def test_json_is_valid_wherever_it_is_cut(name, compiler):
    schema = SCHEMAS[name]
    grammar = compiled(compiler, json=schema, closes_in_time=True)
    validator = jsonschema.Draft202012Validator(schema)
    chance = random.Random(name)
    shortest = len(grammar.ending)
    num_cut = 0
    for extra in (0, 1, 2, 3, 5, 8, 20, 60, 150):
        for _ in range(4):
            text, constraint = random_answer(grammar, shortest + extra, chance)
            validator.validate(json.loads(text))
            num_cut += constraint.was_cut
    assert num_cut > 8  # what chance says is cut often


@pytest.mark.parametrize(
    "wish",
    [
        {"regex": "a*b"},
        {"regex": "(x|y)*z{20}"},
        {"regex": "([A-Z]{3}-[0-9]{4};)+"},
        {"choice": ["yes", "no", "perhaps, but not today"]},
        {"grammar": 'start: NAME " = " NUM\nNAME: /[a-z]+/\nNUM: /[0-9]+/'},
        {"grammar": 'root ::= "(" root ")" | "[" root root "]" | "x"'},
        {"json_object": True},
    ],
)
def test_so_is_any_other_form(wish, compiler):
    grammar = compiled(compiler, **wish, closes_in_time=True)
    chance = random.Random(3)
    for extra in (0, 1, 2, 4, 10, 40):
        for _ in range(4):
            text, _ = random_answer(grammar, len(grammar.ending) + extra, chance)
            assert accepts(grammar, text), text


def test_the_oracle_has_teeth(compiler):
    """Without closing, the same chance leaves texts that are not complete."""
    grammar = compiled(compiler, json=SCHEMAS["flat"], closes_in_time=True)
    chance = random.Random("flat")
    texts = [random_answer(grammar, 60, chance, closes=False)[0] for _ in range(10)]
    assert not all(accepts(grammar, text) for text in texts)


@pytest.mark.parametrize(
    ("wish", "shortest"),
    [
        ({"json_object": True}, "{}"),
        ({"json": {"type": "array"}}, "[]"),
        ({"json": {"type": "string"}}, '""'),
        ({"json": {"type": "string", "minLength": 40}}, '"' + "." * 40 + '"'),
        ({"json": {"enum": ["longer", "x"]}}, '"x"'),
        ({"json": SCHEMAS["a large way beside a small one"]}, "null"),
        ({"regex": "a*b"}, "b"),
    ],
)
def test_endings_are_short(wish, shortest, compiler):
    assert len(compiled(compiler, **wish, closes_in_time=True).ending) <= len(shortest) + 1


def test_an_ending_that_nobody_finds_is_a_refusal(compiler):
    """Ten thousand letters are more than is searched for."""
    with pytest.raises(InvalidRequest, match="no ending") as error:
        compiled(compiler, regex="[a-z]{10000}", closes_in_time=True)
    assert error.value.param == "structured_outputs.closes_in_time"
    assert compiled(compiler, regex="[a-z]{10000}")


def test_what_is_opened_late_is_kept_while_it_can_still_be_closed(compiler):
    """An essay of 120 letters at least, begun where 200 tokens are left; and where 100 are."""
    schema = {
        "type": "object",
        "properties": {"essay": {"type": "string", "minLength": 120, "pattern": "^[a-z]*$"}},
        "additionalProperties": False,
    }
    grammar = compiled(compiler, json=schema, closes_in_time=True)
    for num_tokens, is_kept in ((200, True), (100, False)):
        constraint = grammar.start(num_tokens_max=num_tokens)
        said = [constraint.accept(byte) for byte in b'{"']
        assert (bytes(said) == b'{"') is is_kept
        assert constraint.was_cut is not is_kept


def test_searches_together_have_a_budget(compiler):
    grammar = compiled(compiler, regex="(x|y)*z{20}", closes_in_time=True)
    closer = Closer(grammar.vocab, num_tries=5)
    for is_found in (True, False):
        found = closer.find(grammar.matcher, num_tokens_max=50, width=1, num_tries=1000)
        assert (found is not None) is is_found


def test_what_was_said_of_an_ending_in_other_pieces_is_not_searched_for_again(compiler):
    grammar = compiled(compiler, regex="abcd", closes_in_time=True)
    closer = Closer(grammar.vocab, num_tries=0)
    matcher = grammar.matcher.deep_copy()
    matcher.consume_token(97)
    assert closer.rest(matcher, grammar.ending, 97, num_tokens_max=3) == (98, 99, 100)
    assert closer.rest(matcher, grammar.ending, 97, num_tokens_max=2) is None
    assert closer.rest(matcher, (97,), 300 - 44, num_tokens_max=9) is None
    assert closer.ends(matcher, (98, 99, 100))
    assert not closer.ends(matcher, (98, 99))
