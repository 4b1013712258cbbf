# SPDX-License-Identifier: Apache-2.0
"""The public surface is a reviewed list: a name cannot appear, vanish or move by accident."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import octavo

ROOT = Path(__file__).parents[2]


def test_all_is_sorted_and_every_name_resolves():
    assert list(octavo.__all__) == sorted(octavo.__all__)
    for name in octavo.__all__:
        assert getattr(octavo, name) is not None, name


def test_the_names_that_users_import():
    assert {"LLM", "SamplingParams", "RequestOutput", "CompletionOutput"} <= set(octavo.__all__)


def test_version_is_one_number_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert octavo.__version__ == project == importlib.metadata.version("octavo")
    assert f"## [{project}]" in (ROOT / "CHANGELOG.md").read_text()
