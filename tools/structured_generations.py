#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Let a model answer at temperature 1 under many schemas, and have jsonschema judge every answer.

    .venv/bin/python tools/structured_generations.py [--model smollm2-135m] [--count 200] [--seed 0]

A third of the answers have the fewest tokens that their schema can do with, a third a few more, and
a third enough for most: so most of them must be closed in time. Prints a row per schema and, last,
one line of JSON. Exit status 1 if any answer is invalid.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema

from octavo import LLM, SamplingParams, StructuredOutputs
from octavo.grammar.compiler import GrammarCompiler

EXTRA_TOKENS = (0, 12, 64)  # beyond the shortest answer
PROMPT = "Write a JSON document about {topic}.\n"


def _object(required: list[str], **properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_TEXT, _WHOLE = {"type": "string"}, {"type": "integer"}
_NODE = _object(
    ["label", "next"],
    label={"type": "string", "maxLength": 20},
    next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
)
SCHEMAS: dict[str, dict[str, Any]] = {
    "a person": _object(["name", "age"], name=_TEXT, age={"type": "integer", "minimum": 0}),
    "an order": _object(
        ["id", "items"],
        id={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        items={"type": "array", "minItems": 1, "items": _object(["sku", "n"], sku=_TEXT, n=_WHOLE)},
    ),
    "the weather": _object(
        ["city", "sky", "celsius"],
        city=_TEXT,
        sky={"enum": ["clear", "cloudy", "rain", "snow"]},
        celsius={"type": "number", "minimum": -60, "maximum": 60},
    ),
    "a list of colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
    "a matrix": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    "a linked list": {"$ref": "#/$defs/node", "$defs": {"node": _NODE}},
    "a date": _object(["day", "note"], day={"type": "string", "format": "date"}, note=_TEXT),
    "anything": {"type": "object"},
    "a yes or a no": {"type": "boolean"},
    "a sentence": {"type": "string", "minLength": 12, "maxLength": 200},
    "a number": {"type": "integer", "minimum": 100, "maximum": 99999},
    "one or the other": {
        "anyOf": [_object(["cat"], cat=_TEXT), _object(["dog", "age"], dog=_TEXT, age=_WHOLE)]
    },
    "a pair": {"type": "array", "prefixItems": [_TEXT, _WHOLE], "items": False, "minItems": 2},
    "a dictionary": {"type": "object", "additionalProperties": {"type": "integer"}},
    "optional fields": _object([], a=_TEXT, b=_WHOLE, c={"type": "array", "items": _TEXT}),
    "a constant": _object(["kind", "at"], kind={"const": "event/v1"}, at=_WHOLE),
    "a small step or a large one": {
        "anyOf": [{"type": "null"}, _object(list("abcdef"), **dict.fromkeys("abcdef", _TEXT))]
    },
    "an e-mail": _object(["to"], to={"type": "string", "format": "email"}, cc=_TEXT),
    "nested objects": _object(["x"], x=_object(["y"], y=_object(["z"], z=_WHOLE))),
    "at most three": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 3},
}


@dataclass(frozen=True, slots=True)
class Case:
    topic: str
    num_tokens: int
    seed: int

    @property
    def schema(self) -> dict[str, Any]:
        return SCHEMAS[self.topic]

    @property
    def params(self) -> SamplingParams:
        wish = StructuredOutputs(json=json.dumps(self.schema), closes_in_time=True)
        return SamplingParams(
            temperature=1.0, seed=self.seed, max_tokens=self.num_tokens, structured_outputs=wish
        )


def make_cases(count: int, seed: int, compiler: GrammarCompiler) -> list[Case]:
    """The schemas in turn, each with every number of extra tokens in turn."""
    topics, cases = list(SCHEMAS), []
    for number in range(count):
        topic = topics[number % len(topics)]
        wish = StructuredOutputs(json=json.dumps(SCHEMAS[topic]), closes_in_time=True)
        shortest = compiler.compile(wish, stop_ids=frozenset(), num_tokens=10**6).ending or ()
        turn, place = divmod(number, len(topics))
        extra = EXTRA_TOKENS[(turn + place) % len(EXTRA_TOKENS)]
        cases.append(Case(topic, max(1, len(shortest) + extra), seed + number))
    return cases


def fault_of(case: Case, text: str) -> str | None:
    """What is wrong with an answer; None when it is valid."""
    try:
        value = json.loads(text)
        checker = jsonschema.FormatChecker()
        validator = jsonschema.Draft202012Validator(case.schema, format_checker=checker)
        validator.validate(value)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{case}: {text!r}: {str(error).splitlines()[0]}"
    return None


def answers(llm: LLM, cases: Sequence[Case]) -> list[tuple[str, str]]:
    """Text and finish reason of each case, all at once in one engine."""
    prompts = [PROMPT.format(topic=case.topic) for case in cases]
    outputs = llm.generate(prompts, [case.params for case in cases], use_tqdm=False)
    return [(output.outputs[0].text, str(output.outputs[0].finish_reason)) for output in outputs]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    with LLM(args.model) as llm:
        cases = make_cases(args.count, args.seed, GrammarCompiler(llm.get_tokenizer()))
        start = time.perf_counter()
        results = answers(llm, cases)
        seconds = time.perf_counter() - start
    faults = []
    print(f"{'schema':28} {'answers':>7} {'closed':>7} {'valid':>7}")
    for topic in SCHEMAS:
        own = [(c, *result) for c, result in zip(cases, results, strict=True) if c.topic == topic]
        wrong = [fault for case, text, _ in own if (fault := fault_of(case, text)) is not None]
        closed = sum(reason == "length" for _, _, reason in own)
        print(f"{topic:28} {len(own):7} {closed:7} {len(own) - len(wrong):7}")
        faults += wrong
    print("\n".join(faults))
    num_closed = sum(reason == "length" for _, reason in results)
    numbers = {"answers": len(cases), "closed": num_closed, "invalid": len(faults)}
    print(json.dumps({**numbers, "seconds": round(seconds, 1), "model": args.model}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
