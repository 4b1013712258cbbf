# SPDX-License-Identifier: Apache-2.0
"""``octavo inspect``: what a checkpoint holds and whether octavo can run it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.hub.aliases import DEFAULT_MODEL
from octavo.progress import TerminalProgress, format_bytes

if TYPE_CHECKING:
    from octavo.models.registry import ModelCard

EXAMPLES = (
    "octavo inspect model.gguf",
    "octavo inspect smollm2-135m --json",
)
EXIT_CANNOT_RUN = 1


def inspect(
    name: Annotated[
        str,
        typer.Argument(metavar="FILE|NAME", help="A .gguf file, or any other model name."),
    ] = DEFAULT_MODEL,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what a model file holds and whether octavo can run it.

    Exit status 1 if it cannot.
    """
    from octavo.formats.gguf import GgufFile
    from octavo.hub import resolve
    from octavo.models.registry import describe

    with TerminalProgress() as progress:
        path = resolve(name, progress=progress).path
    with GgufFile.open(path) as file:
        card = describe(file)
    print(json.dumps(asdict(card)) if as_json else "\n".join(_lines(card)))
    if card.problems:
        raise typer.Exit(EXIT_CANNOT_RUN)


def _lines(card: ModelCard) -> list[str]:
    verdict = "octavo runs this model" if not card.problems else "octavo cannot run this model:"
    return [
        f"{'file':14}{card.source} ({format_bytes(card.file_bytes)})",
        *(f"{label:14}{value}" for label, value in _facts(card) if value is not None),
        verdict,
        *(f"  - {problem}" for problem in card.problems),
    ]


def _facts(card: ModelCard) -> list[tuple[str, str | None]]:
    tensor_types = ", ".join(
        f"{use.type_name} {format_bytes(use.num_bytes)} in {use.num_tensors}"
        for use in card.tensor_types
    )
    return [
        ("name", card.name),
        ("architecture", card.architecture),
        ("parameters", f"{card.num_parameters / 1e6:.1f} million"),
        ("tensors", tensor_types or None),
        ("layers", _text(card.num_layers)),
        ("hidden", _text(card.hidden_dim)),
        ("heads", _heads(card)),
        ("vocabulary", _text(card.vocab_size)),
        ("context", _text(card.context_length, " tokens")),
        ("KV cache", _text(card.kv_bytes_per_token, " bytes per token")),
        ("chat template", "yes" if card.has_chat_template else "no (a base model)"),
    ]


def _text(value: int | None, unit: str = "") -> str | None:
    return None if value is None else f"{value:,}{unit}"


def _heads(card: ModelCard) -> str | None:
    if card.num_heads is None:
        return None
    return f"{card.num_heads} ({card.num_kv_heads} for K and V) of {card.head_dim}"
