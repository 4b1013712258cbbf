# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from octavo.cli.bench_flags import local_counter, with_groups, write_json
from octavo.types.errors import InvalidConfig, ModelNotFound


@dataclass(frozen=True)
class Colours:
    red: Annotated[int, typer.Option("--red")] = 1
    blue: Annotated[str | None, typer.Option("--blue")] = None


def make_app(seen: list[object]) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @with_groups
    def paint(colours: Colours, coats: Annotated[int, typer.Option()] = 2) -> None:
        """Paint."""
        seen.append((colours, coats))

    return app


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        ([], (Colours(), 2)),
        (["--blue", "x", "--coats", "3"], (Colours(1, "x"), 3)),
        (["--red", "5"], (Colours(5), 2)),
    ],
)
def test_a_group_becomes_flags_and_the_flags_a_group(args, wanted):
    seen: list[object] = []
    result = CliRunner().invoke(make_app(seen), args)
    assert result.exit_code == 0, result.output
    assert seen == [wanted]


def test_the_command_keeps_its_name_and_help():
    @with_groups
    def paint(colours: Colours) -> None:
        """Paint."""

    assert (paint.__name__, paint.__doc__) == ("paint", "Paint.")
    assert list(inspect.signature(paint).parameters) == ["red", "blue"]


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="cannot write"):
        write_json(tmp_path / "file" / "x.json", {})


def test_an_unknown_tokenizer_is_told(tmp_path):
    with pytest.raises(ModelNotFound):
        local_counter(str(tmp_path / "none.gguf"))
