# SPDX-License-Identifier: Apache-2.0
"""Run ``octavo`` commands in this process, over a fake model."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from llmkit import FakeAssembled, make_llm
from octavo.cli.main import app
from octavo.llm import LLM


class Opener:
    """Stands in for ``LLM``: remembers what it was asked to open."""

    def __init__(self, **engine: Any) -> None:
        self.llm, self.assembled = make_llm(**engine)
        self.model: str | None = None
        self.options: dict[str, object] = {}

    def __call__(self, model: str, **options: object) -> LLM:
        self.model, self.options = model, options
        return self.llm


def invoke(*args: str, opener: Opener | None = None, input: str | None = None) -> Result:
    return CliRunner().invoke(app, list(args), obj=opener or Opener(), input=input)


__all__ = ["FakeAssembled", "Opener", "invoke"]
