# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import random

import jsonschema
import llguidance
import pytest

from chatkit import call, numbered_ids, parts_of
from octavo.chat.call_text import arguments_object
from octavo.chat.dialect import Dialect
from octavo.chat.parts import Content
from octavo.chat.tools import Tool, ToolChoice, ToolMode
from octavo.chat.whole_answer import joined
from octavo.types.structured_outputs import StructuredOutputs

TREE = {
    "properties": {
        "root": {"$ref": "#/$defs/node"},
        "$ref": {"enum": [{"$ref": "#/$defs/node"}, "#"]},
    },
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        }
    },
}
TOOLS = (
    Tool("get_weather", "", {"properties": {"city": {"type": "string"}}, "required": ["city"]}),
    Tool("plant", "a tree", TREE),
    Tool("rest"),
)
REQUIRED = ToolChoice(ToolMode.REQUIRED)


def schema_of(choice: ToolChoice, *, parallel: bool = True) -> dict:
    form = Dialect().forced_call(TOOLS, choice, parallel=parallel)
    assert isinstance(form, StructuredOutputs)
    assert form.closes_in_time
    return json.loads(form.json or "")


def calls(*pairs: tuple[str, object]) -> list[dict]:
    return [{"name": name, "arguments": arguments} for name, arguments in pairs]


TREES = {"root": {"n": 1, "left": {"n": 2, "left": {"n": 3}}}, "$ref": {"$ref": "#/$defs/node"}}


@pytest.mark.parametrize(
    ("value", "is_good"),
    [
        (calls(("rest", {})), True),
        (calls(("rest", {"anything": 1}), ("get_weather", {"city": "Rome"})), True),
        (calls(("plant", TREES)), True),
        (calls(("plant", {"root": {"n": 1, "left": {"n": "2"}}})), False),
        (calls(("get_weather", {"city": 1})), False),
        (calls(("get_weather", {})), False),
        (calls(("other", {})), False),
        ([], False),
        ({"name": "rest", "arguments": {}}, False),
        ([{"name": "rest"}], False),
    ],
)
def test_required_calls_satisfy_the_schemas_of_their_tools(value, is_good):
    validator = jsonschema.Draft202012Validator(schema_of(REQUIRED))
    assert validator.is_valid(value) is is_good


def test_one_call_only():
    validator = jsonschema.Draft202012Validator(schema_of(REQUIRED, parallel=False))
    assert validator.is_valid(calls(("rest", {})))
    assert not validator.is_valid(calls(("rest", {}), ("rest", {})))


def test_a_named_tool_is_its_arguments_alone():
    schema = schema_of(ToolChoice(ToolMode.REQUIRED, "get_weather"))
    assert schema == TOOLS[0].schema()
    assert schema["type"] == "object"


@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice(ToolMode.REQUIRED, "plant")])
def test_the_grammar_library_takes_the_form(choice):
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema_of(choice)))
    error = llguidance.LLMatcher.validate_grammar(grammar)
    assert error == ""


def test_nothing_is_forced_where_the_model_may_choose():
    for mode in (ToolMode.AUTO, ToolMode.NONE):
        assert Dialect().forced_call(TOOLS, ToolChoice(mode)) is None


def read(choice: ToolChoice, text: str) -> list:
    parser = Dialect().parser(new_call_id=numbered_ids(), tools=TOOLS, choice=choice)
    return parts_of(parser, text)


def test_required_calls_are_read():
    text = '[{"name": "rest", "arguments": {}}, {"name": "plant", "arguments": {"root": {"n": 1}}}]'
    assert read(REQUIRED, text) == [
        *call(0, "rest", "{}"),
        *call(1, "plant", '{"root": {"n": 1}}'),
    ]


@pytest.mark.parametrize("text", ['{"city": "Rome [x] {y}"}', '{"city": "Ro', "{"])
def test_the_arguments_of_a_named_tool_are_read(text):
    assert read(ToolChoice(ToolMode.REQUIRED, "get_weather"), text) == call(0, "get_weather", text)


def test_what_no_grammar_held_back_is_content():
    choice = ToolChoice(ToolMode.REQUIRED, "get_weather")
    assert read(choice, "No.") == [Content("No.")]
    assert read(choice, "{} {}") == [*call(0, "get_weather", "{}"), Content("{}")]


class ByteSampler:
    """Says whatever the grammar allows, a byte at a time, and prefers to come to an end."""

    def __init__(self, schema: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.tokenizer = llguidance.LLTokenizer("byte")
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        self.matcher = llguidance.LLMatcher(self.tokenizer, grammar)

    def text(self) -> str:
        said = bytearray()
        while not self.matcher.is_stopped():
            mask = self.matcher.compute_bitmask()
            allowed = [i for i in range(256) if mask[i // 8] >> (i % 8) & 1]
            closing = [i for i in allowed if i in b'"]},:0123456789'] or allowed
            if not allowed:
                break
            token = self.random.choice(closing if self.random.random() < 0.7 else allowed)
            said.append(token)
            assert self.matcher.consume_token(token)
        return said.decode()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice(ToolMode.REQUIRED, "plant")])
def test_whatever_the_grammar_lets_through_are_calls_that_satisfy_the_schemas(choice, seed):
    form = Dialect().forced_call(TOOLS, choice)
    text = ByteSampler(form.json, seed).text()
    answer = joined(read(choice, text))
    assert (answer.content, answer.calls != ()) == ("", True)
    schemas = {tool.name: tool.schema() for tool in TOOLS}
    for one in answer.calls:
        arguments = arguments_object(one.arguments)
        jsonschema.Draft202012Validator(schemas[one.name]).validate(arguments)
