# SPDX-License-Identifier: Apache-2.0
"""What kind of thing a model name is. Pure, but for asking whether a path exists."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from octavo.types.errors import ModelNotFound, UnsupportedModel

_HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?::(?P<selector>[^:]+))?", re.ASCII)
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)


class HubName(NamedTuple):
    repo: str  # "org/name"
    selector: str | None  # a file name in it, or a quantisation such as Q4_K_M


def parse_hub_name(name: str) -> HubName | None:
    """``org/name``, ``org/name:file.gguf`` or ``org/name:Q4_K_M``; None for anything else."""
    match = _HUB_ID.fullmatch(name)
    if match is None or (name.lower().endswith(".gguf") and match["selector"] is None):
        return None  # "folder/model.gguf" is a path, even when there is no such file
    return HubName(match["repo"], match["selector"])


def pick_file(files: Iterable[str], selector: str | None, where: str) -> str:
    """The one ``.gguf`` among ``files`` that ``selector`` means.

    Raises ``ModelNotFound``, listing the choices, unless exactly one fits, and ``UnsupportedModel``
    for a checkpoint that is cut into shards or has no GGUF at all.
    """
    names = list(files)
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    if not ggufs:
        raise _no_gguf(names, where)
    fitting = [name for name in ggufs if _fits(name, selector)]
    if len(fitting) != 1:
        wanted = "several .gguf files" if selector is None else f"no single file for {selector!r}"
        raise ModelNotFound(
            f"{where} has {wanted}; choose one as {where}:FILE with FILE among " + ", ".join(ggufs)
        )
    if _SHARD.search(fitting[0]):
        raise UnsupportedModel(
            f"{where}: {fitting[0]} is one shard of several; octavo reads one file"
        )
    return fitting[0]


def pick_local_file(folder: Path) -> Path:
    """The only ``.gguf`` in a local directory, under the rules of ``pick_file``."""
    ggufs = sorted(path.name for path in folder.glob("*.gguf"))
    if len(ggufs) > 1:
        raise ModelNotFound(f"{folder} has several .gguf files; give one: " + ", ".join(ggufs))
    names = [path.name for path in folder.iterdir()]
    return folder / pick_file(names, None, str(folder))


def unknown_name(name: str, aliases: Iterable[str]) -> ModelNotFound:
    """The error for a name that is nothing we know, with the likeliest intention."""
    known = sorted(aliases)
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ModelNotFound(
        f"no model is called {name!r}; {hint}a name is an alias ({', '.join(known)}), "
        "the path of a .gguf file, a directory, or a hub id (org/name or org/name:file.gguf)"
    )


def _fits(name: str, selector: str | None) -> bool:
    if selector is None or name == selector:
        return True
    if selector.lower().endswith(".gguf"):
        return False
    # "Q4_K" must not find "Q4_K_M": the tag stands between separators or ends of the stem.
    tag = rf"(?:^|[-.]){re.escape(selector)}$"
    return re.search(tag, Path(name).stem, re.IGNORECASE) is not None


def _no_gguf(names: Iterable[str], where: str) -> ModelNotFound | UnsupportedModel:
    if any(
        name.endswith((".safetensors", ".bin", ".pt")) or name == "config.json" for name in names
    ):
        return UnsupportedModel(
            f"{where} is a Hugging Face checkpoint (safetensors), which octavo does not load yet; "
            "use a GGUF of the same model"
        )
    return ModelNotFound(f"{where} holds no .gguf file")
