#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How octavo's structured output judges the cases of a JSON Schema suite, beside the library alone.

    .venv/bin/python tools/structured_score.py suite.jsonl [more.jsonl] [--model smollm2-135m]

A line of a suite is ``{"schema": ..., "tests": [{"data": ..., "valid": true}, ...]}``. Each datum
is written as JSON and walked token by token: through octavo's compiler and constraint as the engine
drives them, and through the grammar library with its own defaults. A schema that does not compile
judges nothing. Exit status 1 if octavo accepts an invalid datum that the library does not, or
judges fewer right.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import llguidance

from octavo.grammar.compiler import GrammarCompiler
from octavo.grammar.vocabulary import Vocabulary
from octavo.types.errors import InvalidRequest
from octavo.types.ports import Tokenizer
from octavo.types.structured_outputs import StructuredOutputs

LENGTH = 1_000_000  # tokens that an answer may have


@dataclass
class Score:
    """What one side made of a suite. ``wrong_accepts`` names the invalid data that it let pass."""

    num_schemas: int = 0
    num_compiled: int = 0
    num_right_accepts: int = 0
    num_wrong_rejects: int = 0
    num_right_rejects: int = 0
    wrong_accepts: set[str] = field(default_factory=set)
    seconds: float = 0.0

    @property
    def num_right(self) -> int:
        return self.num_right_accepts + self.num_right_rejects

    def count(self, name: str, *, accepted: bool, valid: bool) -> None:
        if accepted and valid:
            self.num_right_accepts += 1
        elif accepted:
            self.wrong_accepts.add(name)
        elif valid:
            self.num_wrong_rejects += 1
        else:
            self.num_right_rejects += 1


class Judge(Protocol):
    def accepts(self, text: str) -> bool: ...


class Side(Protocol):
    def compiled(self, schema: object) -> Judge | None: ...


class OctavoSide:
    """The whole way of a request: budgets, whitespace, stop ids, masks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.compiler = GrammarCompiler(tokenizer)
        self._stops = frozenset(tokenizer.stop_token_ids)

    def compiled(self, schema: object) -> Judge | None:
        try:
            wish = StructuredOutputs(json=json.dumps(schema))
            grammar = self.compiler.compile(wish, stop_ids=self._stops, num_tokens=LENGTH)
        except InvalidRequest:
            return None
        return _OctavoJudge(grammar, self._tokenizer, self._stops)


@dataclass
class _OctavoJudge:
    grammar: Any
    tokenizer: Tokenizer
    stops: frozenset[int]

    def accepts(self, text: str) -> bool:
        constraint = self.grammar.start()
        for token_id in self.tokenizer.encode(text, add_special_tokens=False):
            if constraint.is_complete or not allows(constraint.allowed(), token_id):
                return False
            constraint.accept(token_id)
        may_end = (allows(constraint.allowed(), token_id) for token_id in self.stops)
        return bool(constraint.is_complete or any(may_end))


class LibrarySide:
    """The grammar library with its own defaults."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._vocab = Vocabulary(tokenizer)

    def compiled(self, schema: object) -> Judge | None:
        try:
            text = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        except ValueError:
            return None
        matcher = llguidance.LLMatcher(self._vocab.ll, text, log_level=0)
        return None if matcher.is_error() else _LibraryJudge(matcher, self._tokenizer, self._vocab)


@dataclass
class _LibraryJudge:
    matcher: Any
    tokenizer: Tokenizer
    vocab: Vocabulary

    def accepts(self, text: str) -> bool:
        token_ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.vocab.end_id]
        return bool(self.matcher.deep_copy().validate_tokens(token_ids) == len(token_ids))


def allows(mask: bytes, token_id: int) -> bool:
    return bool(mask[token_id >> 3] >> (token_id & 7) & 1)


def read_suite(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def score(cases: Iterable[dict[str, Any]], side: Side) -> Score:
    result = Score()
    start = time.perf_counter()
    for number, case in enumerate(cases):
        result.num_schemas += 1
        judge = side.compiled(case["schema"])
        if judge is None:
            continue
        result.num_compiled += 1
        for idx, test in enumerate(case["tests"]):
            text = json.dumps(test["data"], ensure_ascii=False)
            accepted = judge.accepts(text)
            result.count(f"{number}.{idx}", accepted=accepted, valid=bool(test["valid"]))
    result.seconds = time.perf_counter() - start
    return result


def is_as_good(octavo: Score, library: Score) -> bool:
    """No invalid datum passes that the library would stop, and as many are judged right."""
    new = octavo.wrong_accepts - library.wrong_accepts
    return not new and octavo.num_right >= library.num_right


HEADER = (
    f"{'suite':36} {'side':8} {'schemas':>7} {'compiled':>8} {'right':>6} {'valid, refused':>14}"
    f" {'invalid, passed':>15} {'seconds':>7}"
)


def row(suite: str, side: str, result: Score) -> str:
    return (
        f"{suite[:36]:36} {side:8} {result.num_schemas:7} {result.num_compiled:8}"
        f" {result.num_right:6} {result.num_wrong_rejects:14} {len(result.wrong_accepts):15}"
        f" {result.seconds:7.1f}"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="+", type=Path)
    parser.add_argument("--model", default="smollm2-135m", help="whose vocabulary is used")
    args = parser.parse_args(arguments)
    tokenizer = _tokenizer(args.model)
    octavo_side, library_side = OctavoSide(tokenizer), LibrarySide(tokenizer)
    good = True
    print(HEADER)
    for path in args.suites:
        ours = score(read_suite(path), octavo_side)
        theirs = score(read_suite(path), library_side)
        print(row(path.stem, "octavo", ours))
        print(row(path.stem, "library", theirs))
        good = good and is_as_good(ours, theirs)
    stats = octavo_side.compiler.stats
    print(
        f"{stats.num_masks} masks, {stats.mask_s / max(1, stats.num_masks) * 1e6:.0f} us each,"
        f" the longest {stats.mask_s_max * 1e3:.1f} ms; {stats.num_compiled} grammars,"
        f" {stats.compile_s / max(1, stats.num_compiled) * 1e3:.1f} ms each"
    )
    return 0 if good else 1


def _tokenizer(model: str) -> Tokenizer:
    from octavo import hub
    from octavo.formats.gguf import GgufFile
    from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf

    file = GgufFile.open(hub.resolve(model).path)
    try:
        return tokenizer_from_gguf(file.metadata)
    finally:
        file.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
