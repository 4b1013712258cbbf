# SPDX-License-Identifier: Apache-2.0
"""Models on a Hugging Face hub, through huggingface-hub: its cache, tokens, mirrors and offline
mode (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE) hold here as everywhere else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol

from octavo.hub.names import HubName, pick_file
from octavo.types.errors import ModelError, ModelNotFound


class HubClient(Protocol):
    def fetch(self, name: HubName) -> Path:
        """The local path of the one file that ``name`` means, downloaded if need be."""


class HuggingFace:
    """The real ``HubClient``. ``endpoint`` None takes HF_ENDPOINT or the public hub, ``cache_dir``
    None the cache that all users of huggingface-hub share."""

    def __init__(self, *, endpoint: str | None = None, cache_dir: Path | None = None) -> None:
        self._endpoint = endpoint
        self._cache_dir = cache_dir

    def fetch(self, name: HubName) -> Path:
        """A file named by a selector is taken from the cache without asking the network; a bare
        ``org/name`` asks which files there are, and falls back on the cache when nobody answers.
        """
        from huggingface_hub import constants
        from huggingface_hub.utils.tqdm import disable_progress_bars

        cached = self._cached_files(name.repo)
        if name.selector is not None and cached:
            try:
                return cached[pick_file(cached, name.selector, name.repo)]
            except ModelError:
                pass  # another file of that repository is here, not this one
        if constants.HF_HUB_OFFLINE:
            return _only_cached(name, cached, "HF_HUB_OFFLINE is set")
        if not sys.stderr.isatty():
            disable_progress_bars()
        try:
            return self._download(name)
        except ModelError:
            raise
        except Exception as error:  # each release raises other types for a broken network
            refusal = _refusal(name, error)
            if refusal is not None:
                raise refusal from error
            return _only_cached(name, cached, f"{type(error).__name__}: {error}")

    def _download(self, name: HubName) -> Path:
        from huggingface_hub import HfApi, hf_hub_download

        files = HfApi(endpoint=self._endpoint).list_repo_files(name.repo)
        file_name = pick_file(files, name.selector, name.repo)
        path = hf_hub_download(
            name.repo, file_name, endpoint=self._endpoint, cache_dir=self._cache_dir
        )
        return Path(path)

    def _cached_files(self, repo: str) -> dict[str, Path]:
        """Name in the repository -> path, of what earlier downloads left of its main branch.

        The layout is huggingface-hub's documented one: refs/main holds a commit, snapshots/COMMIT
        the files.
        """
        from huggingface_hub import constants

        root = self._cache_dir or Path(constants.HF_HUB_CACHE)
        folder = root / f"models--{repo.replace('/', '--')}"
        try:
            commit = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        except OSError:
            return {}
        snapshot = folder / "snapshots" / commit
        return {
            path.relative_to(snapshot).as_posix(): path
            for path in sorted(snapshot.rglob("*.gguf"))
            if path.is_file()
        }


def _only_cached(name: HubName, cached: dict[str, Path], why_not_online: str) -> Path:
    if cached:
        return cached[pick_file(cached, name.selector, name.repo)]
    raise ModelNotFound(
        f"{name.repo} is not in the local cache and cannot be fetched "
        f"({_first_line(why_not_online)}); check the network, HF_ENDPOINT and HF_HUB_OFFLINE, "
        "or give the path of a .gguf file"
    )


def _refusal(name: HubName, error: Exception) -> ModelNotFound | None:
    """The error to raise when the hub was reached and said no: then the cache is no answer."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelNotFound(f"{name.repo} is gated: accept its terms on the hub and set HF_TOKEN")
    if isinstance(error, errors.RepositoryNotFoundError | errors.HFValidationError):
        return ModelNotFound(
            f"the hub has no model {name.repo!r}, or it is private: check the spelling and HF_TOKEN"
        )
    return None


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
