# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.hub.cache import cache_dir, cached_models, exclusive
from octavo.types.errors import ModelError


def test_octavo_cache_moves_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("OCTAVO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "octavo"


def test_partial_files_are_no_models(tmp_path):
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    (folder / "m.gguf.partial").write_bytes(b"xx")
    assert cached_models(tmp_path) == []
    (folder / "m.gguf").write_bytes(b"xxx")
    assert [(model.name, model.size_bytes) for model in cached_models(tmp_path)] == [("m", 3)]


def test_a_cache_that_cannot_be_made_says_how_to_choose_another(tmp_path):
    blocker = tmp_path / "file"
    blocker.touch()
    with (
        pytest.raises(ModelError, match="set OCTAVO_CACHE"),
        exclusive(blocker / "m.lock", lambda: None),
    ):
        pass


def test_the_lock_is_free_again_after_an_exception(tmp_path):
    waits: list[int] = []
    with pytest.raises(RuntimeError), exclusive(tmp_path / "m.lock", lambda: waits.append(1)):
        raise RuntimeError
    with exclusive(tmp_path / "m.lock", lambda: waits.append(1)):
        pass
    assert waits == []
