# SPDX-License-Identifier: Apache-2.0
"""One function from a model's name to its file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from octavo.hub.aliases import ALIASES
from octavo.hub.cache import cache_dir
from octavo.hub.hugging_face import HubClient, HuggingFace
from octavo.hub.names import parse_hub_name, pick_local_file, unknown_name
from octavo.hub.wheels import WheelPuller
from octavo.progress import Progress, silent
from octavo.types.errors import ModelNotFound, UnsupportedModel


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """``path`` is a readable ``.gguf`` file; ``name`` is what to call the model by default."""

    path: Path
    name: str


class Resolver:
    """Turns names into files; the collaborators are injected so that tests need no network."""

    def __init__(self, wheels: WheelPuller, hub: HubClient) -> None:
        self._wheels = wheels
        self._hub = hub

    def resolve(self, name: str | os.PathLike[str], progress: Progress = silent) -> ResolvedModel:
        """An exact alias wins over a file of that name (``./name`` means the file), so that a stray
        folder does not change what a documented name means."""
        text = os.fspath(name)
        if text in ALIASES:
            return ResolvedModel(self._wheels.pull(ALIASES[text], progress), text)
        path = Path(text).expanduser()
        if text and path.exists():
            return _resolve_path(path)
        hub_name = parse_hub_name(text)
        if hub_name is not None:
            return ResolvedModel(self._hub.fetch(hub_name), hub_name.repo)
        if text.lower().endswith(".gguf") or text.startswith(("/", "./", "../", "~")):
            raise ModelNotFound(f"there is no file {path}")
        raise unknown_name(text, ALIASES)


def resolve(name: str | os.PathLike[str], *, progress: Progress | None = None) -> ResolvedModel:
    """The file behind ``name``, pulled into the user's cache first if need be.

    Raises ``ModelNotFound`` (with what to try), ``UnsupportedModel``, ``BadCheckpoint`` for a
    download that is not the model, ``ModelError`` when there is no room or no pip. An alias, a path
    or ``org/name:file`` that is here already costs no network and well under a millisecond; a bare
    ``org/name`` asks the hub which files there are.
    """
    resolver = Resolver(WheelPuller(cache_dir()), HuggingFace())
    return resolver.resolve(name, silent if progress is None else progress)


def _resolve_path(path: Path) -> ResolvedModel:
    if path.is_dir():
        return ResolvedModel(pick_local_file(path), path.absolute().name)
    if not _is_gguf(path):
        raise UnsupportedModel(f"{path} is not a GGUF file (it does not begin with the bytes GGUF)")
    return ResolvedModel(path, path.stem)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"GGUF"
    except OSError as error:
        raise ModelNotFound(f"cannot read {path}: {error.strerror or error}") from error
