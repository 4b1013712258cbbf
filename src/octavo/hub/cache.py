# SPDX-License-Identifier: Apache-2.0
"""The folder where pulled models live, and one lock per model in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from octavo.types import env
from octavo.types.errors import ModelError


class CachedModel(NamedTuple):
    """A pulled model: whole, and verified when it was pulled."""

    name: str
    path: Path
    size_bytes: int


def cache_dir() -> Path:
    """``OCTAVO_CACHE`` if set, else the platform's cache folder of this user. May not exist yet."""
    chosen = env.cache_dir()
    if chosen is not None:
        return chosen.absolute()
    from platformdirs import user_cache_dir  # 20 ms, and most calls know the folder already

    return Path(user_cache_dir("octavo"))


def cached_models(folder: Path | None = None) -> list[CachedModel]:
    """Whole models in the cache, by name. Unfinished downloads are not among them."""
    models = (cache_dir() if folder is None else folder) / "models"
    found = [
        CachedModel(path.parent.name, path, path.stat().st_size)
        for path in models.glob("*/*.gguf")
        if path.is_file()
    ]
    return sorted(found)


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file ``path``; ``on_wait`` is called once if another process has it.

    The kernel drops the lock with its holder, so a crash leaves nothing to clean up. The file
    itself stays: removing it would let two processes hold locks on two files of one name.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ModelError(
            f"cannot write to the model cache {path.parent}: {error.strerror}; "
            "set OCTAVO_CACHE to a folder that can be written"
        ) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
