# SPDX-License-Identifier: Apache-2.0
"""Grammars made to hang, to crash or to fill the memory: each is refused, or costs little."""

from __future__ import annotations

import json
import random
import resource
import time

import pytest

from fakes import ByteTokenizer
from grammarkit import allowed_ids, compiled
from octavo.grammar.compiler import GrammarCompiler
from octavo.types.errors import GrammarFailed, InvalidRequest

CALL_S_MAX = 15.0  # the compile budget of 10 s, and a machine that is busy with other things
STEP_S_MAX = 1.0
MEMORY_MAX = 600 * 2**20


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def deep_schema(depth: int) -> str:
    return '{"type":"array","items":' * depth + "{}" + "}" * depth


def all_of_refs(depth: int) -> dict[str, object]:
    """Two references in each level: 2^depth ways down."""
    defs: dict[str, object] = {
        f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"$ref": f"#/$defs/a{i + 1}"}]}
        for i in range(depth)
    }
    defs[f"a{depth}"] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    return {"$defs": defs, "$ref": "#/$defs/a0"}


def any_of_products(num_factors: int) -> dict[str, object]:
    factor = [{"properties": {f"p{j}": {"type": "integer"}}} for j in range(4)]
    return {"allOf": [{"anyOf": factor} for _ in range(num_factors)]}


def doubling(name: str, depth: int) -> str:
    rules = [f"{name}{i}: {name}{i + 1} {name}{i + 1}" for i in range(depth)]
    return "\n".join([f"start: {name}0", *rules, f'{name}{depth}: "a"'])


WISHES: dict[str, dict[str, object]] = {
    "deep schema": {"json": deep_schema(20_000)},
    "schema of allowed depth": {"json": deep_schema(90)},
    "deep list in a schema": {"json": '{"enum":' + "[" * 50_000 + "]" * 50_000 + "}"},
    "ref to itself": {"json": {"$ref": "#"}},
    "ref loop": {
        "json": {
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "$ref": "#/$defs/a",
        }
    },
    "ref loop through allOf": {
        "json": {
            "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}},
            "$ref": "#/$defs/a",
        }
    },
    "endless object": {
        "json": {
            "$defs": {
                "a": {
                    "type": "object",
                    "properties": {"c": {"$ref": "#/$defs/a"}},
                    "required": ["c"],
                }
            },
            "$ref": "#/$defs/a",
        }
    },
    "refs squared": {"json": all_of_refs(30)},
    "products of anyOf": {"json": any_of_products(12)},
    "huge enum": {"json": {"enum": [f"value {i}" for i in range(100_000)]}},
    "large enum": {"json": {"enum": [f"value {i}" for i in range(15_000)]}},
    "many properties": {
        "json": {
            "type": "object",
            "properties": {f"p{i}": {"type": "string", "maxLength": 100} for i in range(3000)},
        }
    },
    "long string": {"json": {"type": "string", "minLength": 10**6}},
    "maxLength": {"json": {"type": "string", "maxLength": 10**9}},
    "many items": {"json": {"type": "array", "items": {"type": "string"}, "minItems": 10**9}},
    "exponential pattern": {"json": {"type": "string", "pattern": "^(a?){50}a{50}$"}},
    "number of a million digits": {"json": '{"maximum": 1' + "0" * 200_000 + "}"},
    "quantified quantifiers": {"regex": "(((a{1,100}){1,100}){1,100}){1,100}"},
    "quantifier of a billion": {"regex": "a{1000000000}"},
    "states doubled": {"regex": "(.*a.{12}b){3}"},
    "backtracking": {"regex": "(x+x+)+y"},
    "deep groups": {"regex": "(" * 60_000 + "a" + ")" * 60_000},
    "groups of allowed depth": {"regex": "(" * 90 + "a" + ")" * 90},
    "a class of everything": {"regex": r"[\p{L}\p{M}\p{N}]{1,5000}"},
    "many alternatives": {"regex": "|".join(f"word{i}" for i in range(20_000))},
    "deep lark": {"grammar": "start: " + "(" * 60_000 + '"a"' + ")" * 60_000},
    "deep gbnf": {"grammar": "root ::= " + "(" * 60_000 + '"a"' + ")" * 60_000},
    "lark of allowed depth": {"grammar": "start: " + "(" * 90 + '"a"' + ")" * 90},
    "rules in a circle": {"grammar": "start: a\na: b\nb: a"},
    "every way ambiguous": {"grammar": 'start: s\ns: s s | s s s | "a" | "b" | '},
    "rules doubled": {"grammar": doubling("r", 40)},
    "terminals doubled": {"grammar": doubling("T", 40)},
    "many literals": {"grammar": "start: " + " | ".join(f'"w{i}"' for i in range(12_000))},
    "schema in lark": {"grammar": 'start: %json {"$ref": "#"}'},
    "nothing": {"grammar": "start: "},
    "no text": {"regex": "[^\\s\\S]"},
    "too long": {"regex": "a" * 300_000},
}


def speak(grammar, num_tokens: int = 40) -> float:
    """Say something by chance; the longest step in CPU seconds."""
    chance, longest = random.Random(7), 0.0
    try:
        constraint = grammar.start()
        for _ in range(num_tokens):
            if constraint.is_complete:
                break
            token_id = chance.choice(allowed_ids(constraint))
            start = time.thread_time()
            try:
                constraint.accept(token_id)
            finally:
                longest = max(longest, time.thread_time() - start)
    except GrammarFailed:
        pass  # its own request ends with an error, and nothing else
    return longest


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(ByteTokenizer())


@pytest.mark.parametrize("closes", [False, True], ids=["free", "closes"])
@pytest.mark.parametrize("name", WISHES)
def test_it_is_refused_or_cheap(name, closes, compiler):
    peak = peak_bytes()  # of all the tests before this one
    start = time.perf_counter()
    refusal = None
    try:
        grammar = compiled(compiler, **WISHES[name], closes_in_time=closes, num_tokens=10**6)
    except InvalidRequest as error:
        refusal = error
    if refusal is None:
        assert speak(grammar) < STEP_S_MAX
    else:
        assert str(refusal.param).startswith("structured_outputs")
        assert len(str(refusal)) < 600
    assert time.perf_counter() - start < CALL_S_MAX
    assert peak_bytes() - peak < MEMORY_MAX


@pytest.mark.parametrize(
    "name", ["deep schema", "ref to itself", "nothing", "no text", "rules in a circle", "too long"]
)
def test_what_no_text_satisfies_is_refused(name, compiler):
    with pytest.raises(InvalidRequest):
        compiled(compiler, **WISHES[name])


def test_schemas_by_chance(compiler):
    """Objects made of the words of JSON Schema, right and wrong."""
    chance = random.Random(11)
    kinds = ["string", "object", "array", "integer", "boolean", "null", "nonsense"]

    def schema(depth: int) -> object:
        keywords: dict[str, object] = {}
        for _ in range(chance.randrange(1, 4)):
            below = [schema(depth - 1) for _ in range(chance.randrange(3))] if depth else [True]
            keywords |= chance.choice(
                [
                    {"type": chance.choice(kinds)},
                    {"properties": dict(zip("abc", below, strict=False))},
                    {"anyOf": below},
                    {"allOf": below},
                    {"items": below[0] if below else 3},
                    {"enum": [1, "x", below]},
                    {"required": ["a", "b"][: chance.randrange(3)]},
                    {"$ref": chance.choice(["#", "#/$defs/a", "#/properties/a", "http://x/y"])},
                    {"$defs": {"a": below[0] if below else {}}},
                    {"minLength": chance.choice([0, 3, -1, 10**9]), "pattern": "^[a-z]*(x|y)$"},
                    {"maximum": chance.choice([1, 1e308, "1"]), "multipleOf": 3},
                ]
            )
        return keywords

    num_compiled = 0
    for _ in range(400):
        try:
            grammar = compiled(compiler, json=json.dumps(schema(3)))
        except InvalidRequest:
            continue
        num_compiled += 1
        speak(grammar, 10)
    assert 40 < num_compiled < 360
