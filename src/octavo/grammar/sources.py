# SPDX-License-Identifier: Apache-2.0
"""A wish for structured output as the grammar library's own notation."""

from __future__ import annotations

import json
from typing import Any

import llguidance

from octavo.grammar.gbnf import gbnf_to_lark, is_lark
from octavo.grammar.limits import (
    WHITESPACE_MAX,
    GrammarLimits,
    check_depth,
    check_size,
    parse_json,
)
from octavo.types.errors import InvalidRequest
from octavo.types.structured_outputs import StructuredOutputs


def to_grammar(wish: StructuredOutputs, limits: GrammarLimits) -> str:
    """The grammar's text, parsed as far as is cheap. Raises ``InvalidRequest``."""
    param = param_of(wish)
    if wish.json is not None:
        schema = parse_json(wish.json, limits, param=param)
        return _json_grammar(_schema(schema, param), wish, param)
    if wish.json_object:
        return _json_grammar({"type": "object"}, wish, param)
    if wish.regex is not None:
        check_size(wish.regex, limits, param=param)
        check_depth(wish.regex, limits, param=param)
        return llguidance.LLMatcher.grammar_from_regex(wish.regex)
    if wish.choice:
        return _choice_grammar(wish.choice, limits, param)
    if wish.grammar is not None:
        return _lark_grammar(wish.grammar, limits, param)
    return _tag_grammar(wish, limits, param)


def param_of(wish: StructuredOutputs) -> str:
    """The field that a refusal names."""
    return f"structured_outputs.{wish.form}"


def _schema(schema: object, param: str) -> dict[str, Any]:
    if isinstance(schema, dict):
        return schema
    if schema is True:
        return {}
    raise InvalidRequest(
        f"{param} must be a JSON Schema that some text satisfies: an object, or true", param=param
    )


def _json_grammar(schema: dict[str, Any], wish: StructuredOutputs, param: str) -> str:
    """Options go over what the schema says itself: it could lift the bound on white space, or have
    keywords ignored that nobody has implemented."""
    options: dict[str, Any] = {"lenient": False, "item_separator": ",", "key_separator": ":"}
    if wish.disable_any_whitespace:
        options["whitespace_flexible"] = False
        options["whitespace_pattern"] = None
    else:
        options["whitespace_flexible"] = True
        options["whitespace_pattern"] = rf"[\x20\x0A\x0D\x09]{{1,{WHITESPACE_MAX}}}"
    overrides: Any = options
    try:  # as text: a number may be larger than what the library takes from a Python object
        return llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides=overrides
        )
    except ValueError as error:
        raise InvalidRequest(f"{param} cannot be compiled: {error}", param=param) from None


def _choice_grammar(choices: tuple[str, ...], limits: GrammarLimits, param: str) -> str:
    if len(choices) > limits.choices_max:
        raise InvalidRequest(
            f"{param} has {len(choices)} strings; at most {limits.choices_max} are compiled",
            param=param,
        )
    if any(not choice for choice in choices):
        raise InvalidRequest(f"{param} must hold non-empty strings", param=param)
    check_size("".join(choices), limits, param=param)
    # One terminal: alternatives of a rule are all open at once, and too many for one row.
    words = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in dict.fromkeys(choices))
    return llguidance.LLMatcher.grammar_from_lark(f"start: CHOICE\nCHOICE: {words}\n")


def _lark_grammar(text: str, limits: GrammarLimits, param: str) -> str:
    check_size(text, limits, param=param)
    check_depth(text, limits, param=param)
    if is_lark(text):
        return llguidance.LLMatcher.grammar_from_lark(text)
    try:
        return llguidance.LLMatcher.grammar_from_lark(gbnf_to_lark(text))
    except ValueError as error:
        message = f"{param} has no start: rule, so it is read as GBNF: {error}"
        raise InvalidRequest(message, param=param) from None


def _tag_grammar(wish: StructuredOutputs, limits: GrammarLimits, param: str) -> str:
    """Free text until a trigger; then one of the tags that begin with it, its schema, its end."""
    value = parse_json(wish.structural_tag or "", limits, param=param)
    tags, triggers = _tags(value, limits, param)
    lines = ["%llguidance {}", "", f"start: ({' | '.join(_rules(triggers))})* TEXT", ""]
    lines.append(r"TEXT: /(.|\n)*/")
    num_chars = 0
    for rule, trigger in zip(_rules(triggers), triggers, strict=True):
        own = [tag for tag in tags if str(tag["begin"]).startswith(trigger)]
        bodies = " | ".join(_tag_body(tag, trigger, wish, param) for tag in own)
        lines += [f"{rule}: {rule}_head ({bodies})", f"{rule}_head[lazy]: TEXT {_quoted(trigger)}"]
        num_chars += len(bodies)
        if num_chars > limits.text_bytes_max:  # a structure is repeated for each of its triggers
            raise InvalidRequest(
                f"{param} needs a grammar of more than {limits.text_bytes_max} characters",
                param=param,
            )
    return llguidance.LLMatcher.grammar_from_lark("\n".join(lines) + "\n")


def _rules(triggers: list[str]) -> list[str]:
    return [f"tag{idx}" for idx in range(len(triggers))]


def _tag_body(tag: dict[str, Any], trigger: str, wish: StructuredOutputs, param: str) -> str:
    schema = _schema(tag.get("schema", {}), f"{param}.structures.schema")
    guided = json.loads(_json_grammar(schema, wish, param))["grammars"][0]["json_schema"]
    parts = [_quoted(str(tag["begin"])[len(trigger) :]), "%json " + json.dumps(guided)]
    parts.append(_quoted(str(tag["end"])))
    return " ".join(part for part in parts if part)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _tags(
    value: object, limits: GrammarLimits, param: str
) -> tuple[list[dict[str, Any]], list[str]]:
    shape = '{"structures": [{"begin": "", "schema": {}, "end": ""}], "triggers": [""]}'
    match value:
        case {"structures": [_, *_] as tags, "triggers": [_, *_] as triggers}:
            pass
        case _:
            raise InvalidRequest(f"{param} must have the shape {shape}", param=param)
    if max(len(tags), len(triggers)) > limits.tags_max:
        raise InvalidRequest(
            f"{param} has {len(tags)} structures and {len(triggers)} triggers; at most"
            f" {limits.tags_max} of either are compiled",
            param=param,
        )
    for tag in tags:
        match tag:
            case {"begin": str(begin), "end": str()}:
                pass
            case _:
                raise InvalidRequest(f"{param}: a structure has the shape of {shape}", param=param)
        if not any(isinstance(word, str) and word and begin.startswith(word) for word in triggers):
            raise InvalidRequest(
                f"{param}: {begin[:60]!r} begins with none of the triggers", param=param
            )
    used = [word for word in triggers if any(str(tag["begin"]).startswith(word) for tag in tags)]
    return tags, list(dict.fromkeys(used))
