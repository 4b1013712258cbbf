# SPDX-License-Identifier: Apache-2.0
"""What the strict worker of ``echo.py`` is made of: its rule, its memory, its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from octavo.types.step import RowSampling

VOCAB_SIZE = 259
Rule = Callable[[Sequence[int], RowSampling], int]
Slot = tuple[int, int]  # (hash of the tokens up to here, token)
POISON: Slot = (-1, 0)  # what a step that failed may have left


class PlanError(AssertionError):
    """A plan broke the contract of ``octavo.types.step``."""


def want(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError(message)


def checksum_rule(tokens: Sequence[int], sampling: RowSampling) -> int:
    """A byte that depends on every token before it, their order, and the seed unless greedy."""
    total = len(tokens)
    for position, token_id in enumerate(tokens):
        total += (position + 1) * (token_id + 7)
    if sampling.temperature > 0:
        total += (sampling.seed + sampling.sample_idx) * (2 * len(tokens) + 1)
    return total % 256


def windowed_rule(window: int) -> Rule:
    """``checksum_rule`` for a model that sees only so many tokens."""

    def rule(tokens: Sequence[int], sampling: RowSampling) -> int:
        return (checksum_rule(tokens[-window:], sampling) + 13 * len(tokens)) % 256

    return rule


def expected_tokens(
    prompt: Sequence[int],
    num_tokens: int,
    sampling: RowSampling | None = None,
    rule: Rule = checksum_rule,
) -> list[int]:
    """What an ``EchoExecutor`` with this rule answers to a prompt, had it run alone."""
    sampling = sampling or RowSampling()
    tokens = list(prompt)
    for _ in range(num_tokens):
        token_id = ruled(rule(tokens, sampling), tokens, len(prompt), sampling)
        assert token_id is not None, "the settings leave no token"
        tokens.append(token_id)
    return tokens[len(prompt) :]


def ruled(
    token_id: int,
    tokens: Sequence[int],
    num_prompt: int,
    sampling: RowSampling,
    allowed: bytes = b"",
) -> int | None:
    """The first id from ``token_id`` on, round the vocabulary, that may come after ``tokens``; None
    if none may. Penalties and biases shift where it begins, so an id depends on each of them and on
    the history that they look at."""
    outputs = tokens[num_prompt:]
    shift = sum(int(8 * bias) for _, bias in sampling.logit_bias)
    shift += int(8 * sampling.frequency_penalty) * len(outputs)
    shift += int(8 * sampling.presence_penalty) * len(set(outputs))
    shift += int(8 * (sampling.repetition_penalty - 1)) * len(set(tokens))
    first = (token_id + shift) % 256 if shift else token_id  # a byte: no shift ends an answer
    for step in range(VOCAB_SIZE):
        choice = (first + step) % VOCAB_SIZE
        if _may_come(choice, tokens, outputs, sampling, allowed):
            return choice
    return None


def _may_come(
    token_id: int,
    tokens: Sequence[int],
    outputs: Sequence[int],
    sampling: RowSampling,
    allowed: bytes,
) -> bool:
    if len(tokens) < sampling.banned_until and token_id in sampling.banned_ids:
        return False
    if sampling.allowed_ids and token_id not in sampling.allowed_ids:
        return False
    if allowed and not allowed[token_id // 8] >> token_id % 8 & 1:
        return False
    ending = (*outputs, token_id)
    return not any(ending[-len(word) :] == word for word in sampling.bad_words)


class Memory:
    """The contents of blocks, on the device or in the swap tier; None: never written."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.blocks: list[list[Slot | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.busy_until: dict[int, int] = {}  # by block given up: the last step that touches it

    def spoil(self, block_id: int) -> None:
        self.blocks[block_id] = [POISON] * len(self.blocks[block_id])

    def use(self, block_ids: Iterable[int], step_id: int) -> None:
        for block_id in block_ids:
            self.busy_until[block_id] = max(step_id, self.busy_until.get(block_id, 0))


@dataclass
class Row:
    """``slots`` and ``tokens`` are the history: what the table must hold, and what it says."""

    sampling: RowSampling
    blocks: list[int]
    num_computed: int
    history: list[int] = field(default_factory=list)  # kept if the settings need it
    num_prompt: int = 0
    slots: list[Slot] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    last_sample: int | None = None
    last_step_id: int = 0
    has_failed: bool = False
    num_hidden: int = 0  # leading blocks that it does not look at any more
    is_unread: bool = False  # opened over tokens that are not read back yet

    def extend(self, token_ids: Iterable[int]) -> list[Slot]:
        past = self.slots[-1][0] if self.slots else 0
        new: list[Slot] = []
        for token_id in token_ids:
            past = hash((past, token_id))
            new.append((past, token_id))
            self.tokens.append(token_id)
        self.slots += new
        return new
