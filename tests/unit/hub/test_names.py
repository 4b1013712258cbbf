# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.hub.names import HubName, parse_hub_name, pick_file, pick_local_file, unknown_name
from octavo.types.errors import ModelNotFound, UnsupportedModel


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("org/name", HubName("org/name", None)),
        ("org/name:Q4_K_M", HubName("org/name", "Q4_K_M")),
        ("org/name-GGUF:sub/model.gguf", HubName("org/name-GGUF", "sub/model.gguf")),
        ("org/name:", None),
        ("name", None),
        ("a/b/c", None),
        ("folder/model.gguf", None),  # a path, whether or not it exists
        ("/abs/path", None),
        ("../org", None),
        ("org/na me", None),
        ("", None),
    ],
)
def test_a_hub_name_is_owner_slash_name_and_maybe_a_selector(name, wanted):
    assert parse_hub_name(name) == wanted


FILES = ["README.md", "m-Q4_K_M.gguf", "m-Q4_K.gguf", "m.q8_0.gguf", "sub/other-f16.gguf"]


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("Q4_K_M", "m-Q4_K_M.gguf"),
        ("q4_k", "m-Q4_K.gguf"),
        ("Q8_0", "m.q8_0.gguf"),
        ("F16", "sub/other-f16.gguf"),
        ("sub/other-f16.gguf", "sub/other-f16.gguf"),
    ],
)
def test_a_selector_is_an_exact_file_or_a_whole_quantisation(selector, wanted):
    assert pick_file(FILES, selector, "org/name") == wanted


def test_the_only_gguf_needs_no_selector():
    assert pick_file(["README.md", "only.gguf"], None, "org/name") == "only.gguf"


@pytest.mark.parametrize("selector", [None, "Q2_K", "K_M", "missing.gguf"])
def test_an_ambiguous_or_unknown_choice_lists_what_there_is(selector):
    with pytest.raises(ModelNotFound, match=r"m-Q4_K\.gguf.*m-Q4_K_M\.gguf"):
        pick_file(FILES, selector, "org/name")


def test_a_checkpoint_without_gguf_is_named_for_what_it_is():
    with pytest.raises(UnsupportedModel, match=r"safetensors.*GGUF"):
        pick_file(["config.json", "model.safetensors"], None, "org/name")
    with pytest.raises(ModelNotFound, match=r"no \.gguf"):
        pick_file(["README.md"], None, "org/name")


def test_a_shard_is_refused():
    with pytest.raises(UnsupportedModel, match="one shard of several"):
        pick_file(["m-00001-of-00002.gguf"], None, "org/name")


def test_a_local_folder_with_one_gguf_stands_for_it(tmp_path):
    (tmp_path / "a.gguf").touch()
    assert pick_local_file(tmp_path) == tmp_path / "a.gguf"
    (tmp_path / "b.gguf").touch()
    with pytest.raises(ModelNotFound, match=r"a\.gguf, b\.gguf"):
        pick_local_file(tmp_path)


def test_an_unknown_name_suggests_the_nearest_alias_and_says_what_a_name_can_be():
    message = str(unknown_name("SmolM2-135m", ["smollm2-135m", "gemma3-270m"]))
    assert "did you mean 'smollm2-135m'" in message
    assert ".gguf" in message
    assert "org/name" in message
    assert "did you mean" not in str(unknown_name("zzz", ["smollm2-135m"]))
