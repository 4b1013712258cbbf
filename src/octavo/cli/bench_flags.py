# SPDX-License-Identifier: Apache-2.0
"""Flags of the ``octavo bench`` commands: the requests, and groups of flags as one parameter."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from octavo.cli.flags import parse_count
from octavo.types.errors import InvalidConfig

if TYPE_CHECKING:
    from octavo.bench.prompts import Wish
    from octavo.bench.words import Counter

DATA_PANEL, LOAD_PANEL, RESULT_PANEL = "Requests", "Load", "Results"


def option(*names: str, panel: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, help=help, **more)


DatasetName = Annotated[
    str,
    option(
        "--dataset-name",
        metavar="NAME",
        panel=DATA_PANEL,
        help="random (words of given lengths), sharegpt (conversations), sonnet (lines of a text), "
        "mooncake or azure (traces: lengths, times, shared beginnings), custom (JSON lines with "
        '"prompt" and maybe "output_tokens").',
    ),
]
DatasetPath = Annotated[
    Path | None,
    option(
        "--dataset-path",
        metavar="FILE",
        panel=DATA_PANEL,
        help="The file of every data set but random; may be gzipped.",
    ),
]
NumPrompts = Annotated[
    int,
    option(
        "--num-prompts",
        metavar="N",
        min=1,
        panel=DATA_PANEL,
        help="Requests, if the file has so many; of a trace, the first rows.",
    ),
]
InputLen = Annotated[
    int | None,
    option(
        "--random-input-len",
        "--input-len",
        "--sonnet-input-len",
        metavar="TOKENS",
        min=1,
        panel=DATA_PANEL,
        help="Length of prompts. Default: random 1024, sonnet 550, else the data set's own.",
    ),
]
OutputLen = Annotated[
    int | None,
    option(
        "--random-output-len",
        "--output-len",
        "--sonnet-output-len",
        "--sharegpt-output-len",
        "--custom-output-len",
        metavar="TOKENS",
        min=1,
        panel=DATA_PANEL,
        help="Longest answer. Default: random 128, sonnet 150, custom 256, else the data set's "
        "own.",
    ),
]
PrefixLen = Annotated[
    int | None,
    option(
        "--random-prefix-len",
        "--sonnet-prefix-len",
        metavar="TOKENS",
        min=0,
        panel=DATA_PANEL,
        help="Beginning that all prompts share: random puts it before the prompt, sonnet counts it "
        "in. Default: random 0, sonnet 200.",
    ),
]
RangeRatio = Annotated[
    float,
    option(
        "--random-range-ratio",
        metavar="R",
        panel=DATA_PANEL,
        help="Lengths of random vary evenly from 1-R to 1+R times the given one.",
    ),
]
MaxModelLen = Annotated[
    int | None,
    option(
        "--max-model-len",
        metavar="TOKENS",
        parser=parse_count,
        panel=DATA_PANEL,
        help="Leave out requests that are longer with their answers (32k works).",
    ),
]
Seed = Annotated[
    int,
    option(
        "--seed", metavar="N", panel=DATA_PANEL, help="The same seed makes the same load again."
    ),
]
Tokenizer = Annotated[
    str | None,
    option(
        "--tokenizer",
        metavar="NAME",
        panel=DATA_PANEL,
        help="Count prompts' tokens with this model's: an alias or a .gguf file. Default: ask "
        "the server, and if it cannot count, count words.",
    ),
]
NoProgress = Annotated[
    bool, option("--no-progress", "--disable-tqdm", panel=RESULT_PANEL, help="Draw no bar.")
]
OutputJson = Annotated[
    Path | None,
    option(
        "--output-json",
        metavar="FILE",
        panel=RESULT_PANEL,
        help="Write the results to this file, as JSON.",
    ),
]


@dataclass(frozen=True, slots=True)
class DataFlags:
    """Which requests are made."""

    dataset_name: DatasetName = "random"
    dataset_path: DatasetPath = None
    num_prompts: NumPrompts = 1000
    input_len: InputLen = None
    output_len: OutputLen = None
    prefix_len: PrefixLen = None
    range_ratio: RangeRatio = 0.0
    seed: Seed = 0

    def wish(self, max_model_len: int | None) -> Wish:
        """Raises ``InvalidConfig``."""
        from octavo.bench.prompts import Wish

        return Wish(
            self.dataset_name,
            self.dataset_path,
            self.num_prompts,
            self.seed,
            input_len=self.input_len,
            output_len=self.output_len,
            prefix_len=self.prefix_len,
            range_ratio=self.range_ratio,
            max_model_len=max_model_len,
        )


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer out of one whose parameters may be groups: dataclasses, each of whose
    fields becomes a flag."""
    hints = get_type_hints(command, include_extras=True)
    flat: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for one in inspect.signature(command).parameters.values():
        hint = hints.get(one.name, one.annotation)
        if is_dataclass(hint) and isinstance(hint, type):
            groups[one.name] = hint
            flat += _flags_of(hint)
        else:
            flat.append(one.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    with_flags.__annotations__ = {one.name: one.annotation for one in flat}
    with_flags.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return with_flags


def _flags_of(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def write_json(path: Path, document: object) -> None:
    """Raises ``InvalidConfig``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidConfig(f"cannot write {path}: {error.strerror or error}") from error


def local_counter(name: str) -> Counter:
    """The tokenizer of a model, without its weights; the file is pulled first if need be. Raises
    ``ModelError``."""
    from octavo import hub
    from octavo.bench.words import TokenizerCounter
    from octavo.formats.gguf import GgufFile
    from octavo.progress import TerminalProgress
    from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf

    with TerminalProgress() as progress:
        path = hub.resolve(name, progress=progress).path
    file = GgufFile.open(path)
    try:
        return TokenizerCounter(tokenizer_from_gguf(file.metadata), f"the tokenizer of {name}")
    finally:
        file.close()
