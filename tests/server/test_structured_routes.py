# SPDX-License-Identifier: Apache-2.0
"""The ways to ask for a form of the answer over HTTP, and every refusal by its field's own name."""

from __future__ import annotations

import json

import pytest
from serverkit import ReciteEngine, connect, make_app

pytestmark = pytest.mark.anyio
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODY = {"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 30}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def as_format(**fields: object) -> dict[str, object]:
    return {"response_format": {"type": "json_schema", "json_schema": fields}}


async def post(path: str, fields: dict[str, object], engine: ReciteEngine | None = None):
    async with connect(make_app(engine)) as client:
        response = await client.post(path, json={**BODY, **fields})
    return response.status_code, response.json()


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "form", "value"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object", True),
        (as_format(name="pair", schema=SCHEMA, strict=True), "json", json.dumps(SCHEMA)),
        (as_format(name="pair", description="two"), "json_object", True),
        ({"structured_outputs": {"json": SCHEMA}}, "json", json.dumps(SCHEMA)),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, "json", json.dumps(SCHEMA)),
        ({"structured_outputs": {"json_object": True, "regex": None}}, "json_object", True),
        ({"structured_outputs": {"regex": "[a-z]+"}}, "regex", "[a-z]+"),
        ({"structured_outputs": {"choice": ["a", "b"]}}, "choice", ("a", "b")),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "grammar", 'root ::= "a"'),
        ({"guided_json": SCHEMA}, "json", json.dumps(SCHEMA)),
        ({"guided_regex": "[a-z]+"}, "regex", "[a-z]+"),
        ({"guided_choice": ["a", "b"]}, "choice", ("a", "b")),
        ({"guided_grammar": 'start: "a"'}, "grammar", 'start: "a"'),
    ],
)
async def test_every_way_to_ask(path, fields, form, value):
    engine = ReciteEngine()
    status, answer = await post(path, fields, engine)
    assert status == 200, answer
    (request,) = engine.requests
    wish = request.params.structured_outputs
    assert (wish.form, getattr(wish, form)) == (form, value)
    assert request.grammar is not None


async def test_a_structural_tag():
    tag = {
        "structures": [{"begin": "<call>", "schema": SCHEMA, "end": "</call>"}],
        "triggers": ["<call"],
    }
    engine = ReciteEngine()
    for fields in (
        {"structured_outputs": {"structural_tag": tag}},
        {"response_format": {"type": "structural_tag", **tag}},
    ):
        status, answer = await post(CHAT, fields, engine)
        assert status == 200, answer
    first, second = (request.grammar for request in engine.requests)
    constraints = [first.start(), second.start()]
    for constraint in constraints:
        for byte in b'well: <call>{"a":1}</call> and':
            constraint.accept(byte)
        assert constraint.allowed()


async def test_closing_in_time_is_asked_for_beside_the_form():
    engine = ReciteEngine()
    fields = {"structured_outputs": {"json": SCHEMA, "closes_in_time": True}}
    status, _ = await post(CHAT, fields, engine)
    assert status == 200
    assert engine.requests[0].params.structured_outputs.closes_in_time


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "param", "why"),
    [
        ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
        ({"response_format": "json"}, "response_format", "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "object"),
        (as_format(schema=SCHEMA), "response_format.json_schema.name", "1 to 64"),
        (as_format(name="a b", schema=SCHEMA), "response_format.json_schema.name", "1 to 64"),
        (as_format(name="a", strict="yes"), "response_format.json_schema.strict", "boolean"),
        (as_format(name="a", schema=[]), "response_format.json_schema.schema", "object"),
        (
            as_format(name="a", schema={"type": "nonsense"}),
            "response_format.json_schema.schema",
            "cannot be compiled",
        ),
        (
            as_format(name="a", schema={"type": "object", "unevaluatedProperties": False}),
            "response_format.json_schema.schema",
            "unevaluatedProperties",
        ),
        ({"structured_outputs": "json"}, "structured_outputs", "object"),
        ({"structured_outputs": {}}, "structured_outputs", "got none"),
        ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs", "json, regex"),
        ({"structured_outputs": {"regexp": "a"}}, "structured_outputs", "no field regexp"),
        ({"structured_outputs": {"regex": {"a": 1}}}, "structured_outputs.regex", "string"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "compiled"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "not JSON"),
        ({"structured_outputs": {"json": False}}, "structured_outputs.json", "satisfies"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs.choice", "strings"),
        ({"structured_outputs": {"choice": "ab"}}, "structured_outputs.choice", "list"),
        (
            {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
            "structured_outputs.whitespace_pattern",
            "not supported",
        ),
        ({"guided_regex": "("}, "guided_regex", "compiled"),
        ({"guided_json": 3}, "guided_json", "string"),
        ({"guided_choice": [""]}, "guided_choice", "non-empty"),
        ({"guided_grammar": "a b c"}, "guided_grammar", "GBNF"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "give one"),
        (
            {"guided_regex": "a", "response_format": {"type": "json_object"}},
            "response_format",
            "give one",
        ),
        (
            {"structured_outputs": {"regex": "[a-z]{40}", "closes_in_time": True}},
            "max_tokens",
            "40 or more",
        ),
    ],
)
async def test_refusals_name_the_field(path, fields, param, why):
    engine = ReciteEngine()
    status, answer = await post(path, fields, engine)
    assert (status, answer["error"]["param"]) == (400, param), answer
    assert why in answer["error"]["message"]
    assert not engine.requests


async def test_echo_has_another_form():
    status, answer = await post(COMPLETIONS, {"echo": True, "guided_regex": "a"})
    assert (status, answer["error"]["param"]) == (400, "echo")


async def test_logprobs_of_an_answer_that_may_be_closed_are_refused():
    wish = {"structured_outputs": {"regex": "a+", "closes_in_time": True}, "logprobs": True}
    status, answer = await post(CHAT, wish)
    assert status == 400
    assert "closes_in_time" in answer["error"]["message"]


async def test_text_is_no_form():
    engine = ReciteEngine()
    status, _ = await post(CHAT, {"response_format": {"type": "text"}}, engine)
    assert status == 200
    assert engine.requests[0].grammar is None
