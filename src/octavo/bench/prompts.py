# SPDX-License-Identifier: Apache-2.0
"""From a data set to the requests of a run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.bench import datasets
from octavo.bench.datasets import MOONCAKE_BLOCK_TOKENS, BadDataset, Shape, Turn
from octavo.bench.records import Sample
from octavo.bench.words import Writer
from octavo.types.errors import InvalidConfig

NAMES = ("random", "sharegpt", "sonnet", "mooncake", "azure", "custom")
TRACES = ("mooncake", "azure")
SONNET_TASK = "Choose some of these lines and arrange them as a new poem:"

# Prompt, answer and shared beginning in tokens, where the flags do not say.
_LENGTHS = {"random": (1024, 128, 0), "sonnet": (550, 150, 200), "custom": (0, 256, 0)}


@dataclass(frozen=True, slots=True)
class Wish:
    """Which requests are wanted. Lengths are in tokens; None takes the data set's own.

    range_ratio     random's lengths vary evenly by this share of them, [0, 1)
    max_model_len   requests that are longer with their answers are left out
    """

    name: str = "random"
    path: Path | None = None
    count: int = 1000
    seed: int = 0
    input_len: int | None = None
    output_len: int | None = None
    prefix_len: int | None = None
    range_ratio: float = 0.0
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise InvalidConfig(
                f"--dataset-name must be one of {', '.join(NAMES)}; got {self.name!r:.60}"
            )
        if (self.path is None) != (self.name == "random"):
            takes = "no file" if self.name == "random" else "a file: give --dataset-path"
            raise InvalidConfig(f"--dataset-name {self.name} takes {takes}")
        if not 0 <= self.range_ratio < 1:
            raise InvalidConfig(
                f"--random-range-ratio must be at least 0 and below 1; got {self.range_ratio:g}"
            )

    def lengths(self) -> tuple[int, int, int]:
        """Of prompt, answer and shared beginning."""
        own = _LENGTHS.get(self.name, (0, 0, 0))
        given = (self.input_len, self.output_len, self.prefix_len)
        prompt, answer, prefix = (a if b is None else b for a, b in zip(own, given, strict=True))
        return prompt, answer, prefix

    def fits(self, num_prompt_tokens: int, num_output_tokens: int) -> bool:
        total = num_prompt_tokens + num_output_tokens
        return self.max_model_len is None or total <= self.max_model_len


async def make_samples(wish: Wish, writer: Writer) -> list[Sample]:
    """Up to ``wish.count`` samples: files may hold fewer that fit. The same wish and counter give
    the same samples. Raises ``BadDataset``, also if there are none."""
    rng = random.Random(wish.seed)
    if wish.name == "random":
        samples = await _random(wish, writer, rng)
    elif wish.name == "sonnet":
        samples = await _sonnet(wish, writer, rng)
    elif wish.name in TRACES:
        samples = await _trace(wish, writer)
    else:
        samples = await _turns(wish, writer, rng)
    if not samples:
        raise BadDataset(f"--dataset-name {wish.name} has no request that fits")
    return samples


async def _random(wish: Wish, writer: Writer, rng: random.Random) -> list[Sample]:
    """The shared beginning comes before prompts of the wanted length."""
    prompt_len, output_len, prefix_len = wish.lengths()
    prefix = writer.words(rng, prefix_len)
    samples = []
    for _ in range(wish.count):
        wanted = _around(prompt_len, wish.range_ratio, rng)
        answer = _around(output_len, wish.range_ratio, rng)
        if wish.fits(wanted + prefix_len, answer):
            text, count = await writer.write(rng, wanted + prefix_len, prefix)
            samples.append(Sample(text, count, answer))
    return samples


def _around(length: int, ratio: float, rng: random.Random) -> int:
    return max(rng.randint(round(length * (1 - ratio)), round(length * (1 + ratio))), 1)


async def _sonnet(wish: Wish, writer: Writer, rng: random.Random) -> list[Sample]:
    """Lines of the poems: first the same ones for all requests, then drawn ones."""
    assert wish.path is not None
    lines = datasets.read_sonnet(wish.path)
    prompt_len, output_len, prefix_len = wish.lengths()
    task = await writer.counter.count(SONNET_TASK)
    per_line = sum([await writer.counter.count(line) for line in lines]) / len(lines)
    num_lines = max(round((prompt_len - task) / per_line), 1)
    num_shared = min(max(round((prefix_len - task) / per_line), 0), num_lines, len(lines))
    samples = []
    for _ in range(wish.count):
        drawn = rng.choices(lines, k=num_lines - num_shared)
        text = "\n".join([SONNET_TASK, *lines[:num_shared], *drawn])
        count = await writer.counter.count(text)
        if wish.fits(count, output_len):
            samples.append(Sample(text, count, output_len))
    return samples


async def _trace(wish: Wish, writer: Writer) -> list[Sample]:
    assert wish.path is not None
    read = datasets.read_azure if wish.name == "azure" else datasets.read_mooncake
    samples = []
    for idx, shape in enumerate(read(wish.path, wish.count)):
        answer = shape.num_output_tokens if wish.output_len is None else wish.output_len
        if wish.fits(shape.num_prompt_tokens, answer):
            rng = random.Random(f"{wish.seed} {idx}")
            prefix = _hashed_words(shape, writer, wish.seed)
            text, count = await writer.write(rng, shape.num_prompt_tokens, prefix)
            samples.append(Sample(text, count, answer, shape.at_s))
    return samples


def _hashed_words(shape: Shape, writer: Writer, seed: int) -> list[str]:
    """The same words for the same id, as many as the prompt has room for."""
    words: list[str] = []
    for hash_id in shape.hash_ids[: -(-shape.num_prompt_tokens // MOONCAKE_BLOCK_TOKENS)]:
        words += writer.words(random.Random(f"{seed} block {hash_id}"), MOONCAKE_BLOCK_TOKENS)
    return words[: shape.num_prompt_tokens]


async def _turns(wish: Wish, writer: Writer, rng: random.Random) -> list[Sample]:
    """ShareGPT is drawn from, and answers are as long as in the file; custom keeps its order."""
    assert wish.path is not None
    turns: Sequence[Turn]
    if wish.name == "custom":
        turns = datasets.read_custom(wish.path, wish.count)
    else:
        turns = datasets.read_sharegpt(wish.path)
        turns = rng.sample(turns, len(turns))
    samples: list[Sample] = []
    for turn in turns:
        if len(samples) == wish.count:
            break
        prompt = await writer.counter.count(turn.prompt)
        answer = await _answer_len(turn, wish, writer)
        if wish.fits(prompt, answer):
            samples.append(Sample(turn.prompt, prompt, answer))
    return samples


async def _answer_len(turn: Turn, wish: Wish, writer: Writer) -> int:
    if wish.output_len is not None:
        return wish.output_len
    if turn.num_output_tokens is not None:
        return turn.num_output_tokens
    if turn.answer is not None:
        return max(await writer.counter.count(turn.answer), 1)
    return wish.lengths()[1]
