# SPDX-License-Identifier: Apache-2.0
"""Which architectures octavo runs, and what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from octavo.formats.gguf import GgufFile
from octavo.formats.gguf_types import TENSOR_TYPES, one_line, printable
from octavo.loaders.gguf import find_problems
from octavo.models import gemma3, llama
from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf
from octavo.types.decoder_spec import DecoderSpec, TensorSpec
from octavo.types.errors import ModelError, UnsupportedModel

ARCHITECTURE_KEY = "general.architecture"
SPLIT_KEY = "split.count"
PROBLEMS_MAX = 20  # a card is for reading
TEXT_LENGTH_MAX = 200

ARCHITECTURES: dict[str, Callable[[GgufFile], tuple[DecoderSpec, list[TensorSpec]]]] = {
    gemma3.ARCHITECTURE: gemma3.spec,
    llama.ARCHITECTURE: llama.spec,
}


@dataclass(frozen=True, slots=True)
class TensorTypeUse:
    """How much of a checkpoint is stored in one tensor type."""

    type_name: str
    num_tensors: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What a checkpoint holds. ``problems`` says why octavo cannot run it; empty when it can.

    Fields are None where the file does not say, or not in a way that makes sense.
    ``num_parameters`` counts stored elements: a matrix that serves twice counts once.
    """

    source: str
    file_bytes: int
    architecture: str | None
    name: str | None
    num_parameters: int
    tensor_types: tuple[TensorTypeUse, ...]
    has_chat_template: bool
    problems: tuple[str, ...]
    context_length: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    hidden_dim: int | None = None
    vocab_size: int | None = None
    kv_bytes_per_token: int | None = None


def spec_for(file: GgufFile) -> tuple[DecoderSpec, list[TensorSpec]]:
    """The decoder that a file describes and the tensors that it must hold.

    Raises ``UnsupportedModel`` for an architecture octavo has no code for, ``BadCheckpoint`` for
    hyperparameters that are missing or make no sense. The tensors' shapes are not compared here:
    that is the loader's check.
    """
    num_parts = file.metadata.get_int(SPLIT_KEY, 0, 2**16, default=1)
    if num_parts > 1:
        message = f"got one of {num_parts} parts, octavo reads models of one file: merge them"
        raise UnsupportedModel(one_line(file.source, SPLIT_KEY, message))
    architecture = file.metadata.get_str(ARCHITECTURE_KEY)
    build = ARCHITECTURES.get(architecture)
    if build is None:
        known = ", ".join(sorted(ARCHITECTURES))
        message = f"got {architecture!r:.60}, octavo runs: {known}"
        raise UnsupportedModel(one_line(file.source, ARCHITECTURE_KEY, message))
    return build(file)


def describe(file: GgufFile) -> ModelCard:
    """The card of an open file. Never refuses a file: what is wrong is listed under problems.

    Cost: building the tokenizer, 0.1 to 0.5 s; no tensor data is read but frequency factors.
    """
    problems = list(islice((str(error) for error in _problems(file)), PROBLEMS_MAX))
    try:
        decoder: DecoderSpec | None = spec_for(file)[0]
    except ModelError:
        decoder = None
    first = decoder.layers[0] if decoder else None
    return ModelCard(
        source=file.source,
        file_bytes=file.num_bytes,
        architecture=_text(file, ARCHITECTURE_KEY),
        name=_text(file, "general.name"),
        num_parameters=sum(info.num_elements for info in file.tensors.values()),
        tensor_types=_type_uses(file),
        has_chat_template=bool(_text(file, "tokenizer.chat_template")),
        problems=tuple(problems),
        context_length=decoder.context_length if decoder else None,
        num_layers=len(decoder.layers) if decoder else None,
        num_heads=first.num_heads if first else None,
        num_kv_heads=first.num_kv_heads if first else None,
        head_dim=first.head_dim if first else None,
        hidden_dim=decoder.hidden_dim if decoder else None,
        vocab_size=decoder.vocab_size if decoder else None,
        kv_bytes_per_token=decoder.kv_bytes_per_token() if decoder else None,
    )


def _problems(file: GgufFile) -> Iterator[ModelError]:
    try:
        _, tensors = spec_for(file)
    except ModelError as error:
        yield error
    else:
        yield from find_problems(file, tensors)
    try:
        tokenizer_from_gguf(file.metadata)
    except ModelError as error:
        yield error


def _text(file: GgufFile, key: str) -> str | None:
    """A string of the file, fit for a terminal: no control characters, no stray bytes."""
    try:
        return printable(file.metadata.get_str(key), TEXT_LENGTH_MAX)
    except ModelError:
        return None


def _type_uses(file: GgufFile) -> tuple[TensorTypeUse, ...]:
    """Largest first."""
    totals: dict[int, tuple[int, int]] = {}
    for info in file.tensors.values():
        num_tensors, num_bytes = totals.get(info.ggml_type, (0, 0))
        totals[info.ggml_type] = (num_tensors + 1, num_bytes + info.num_bytes)
    uses = (TensorTypeUse(TENSOR_TYPES[number].name, *total) for number, total in totals.items())
    return tuple(sorted(uses, key=lambda use: (-use.num_bytes, use.type_name)))
