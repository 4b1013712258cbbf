# SPDX-License-Identifier: Apache-2.0
"""Compile a wish over bytes, walk texts through it, and let chance answer."""

from __future__ import annotations

import random

from fakes import ByteTokenizer
from octavo.grammar.compiler import CompiledGrammar, GrammarCompiler
from octavo.grammar.constraint import GrammarConstraint
from octavo.types.structured_outputs import StructuredOutputs

STOPS = frozenset({257, 258})


def compiled(
    compiler: GrammarCompiler | None = None,
    *,
    stop_ids: frozenset[int] = STOPS,
    num_tokens: int = 1000,
    **wish: object,
) -> CompiledGrammar:
    compiler = compiler or GrammarCompiler(ByteTokenizer())
    form = StructuredOutputs(**wish)  # type: ignore[arg-type]
    return compiler.compile(form, stop_ids=stop_ids, num_tokens=num_tokens)


def allows(constraint: GrammarConstraint, token_id: int) -> bool:
    return bool(constraint.allowed()[token_id >> 3] >> (token_id & 7) & 1)


def allowed_ids(constraint: GrammarConstraint) -> list[int]:
    return [token_id for token_id in range(259) if allows(constraint, token_id)]


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    """Is this a whole answer?"""
    constraint = grammar.start()
    for byte in text.encode():
        if constraint.is_complete or not allows(constraint, byte):
            return False
        constraint.accept(byte)
    return constraint.is_complete or allows(constraint, 257)


def random_answer(
    grammar: CompiledGrammar, num_tokens: int, chance: random.Random, *, closes: bool = True
) -> tuple[str, GrammarConstraint]:
    """What a model without any sense would say in at most so many tokens."""
    constraint = grammar.start(num_tokens_max=num_tokens if closes else None)
    tokens: list[int] = []
    while len(tokens) < num_tokens and not constraint.is_complete:
        tokens.append(constraint.accept(chance.choice(allowed_ids(constraint))))
    said = bytes(token for token in tokens if token < 256)
    return said.decode(errors="strict" if closes else "replace"), constraint
