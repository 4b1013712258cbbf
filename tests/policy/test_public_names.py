# SPDX-License-Identifier: Apache-2.0
"""The public surface is a reviewed list: a name cannot appear, vanish or move by accident."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import tomllib
from pathlib import Path

import octavo

ROOT = Path(__file__).parents[2]
PUBLIC = """
    BadCheckpoint BeamSearchParams CacheConfig CompletionOutput CorruptState EngineConfig
    EngineOverloaded EngineStopped FinishReason InvalidConfig InvalidRequest LLM Logprob
    ModelError ModelNotFound OctavoError OnOverflow OutputKind PromptTooLong RequestMetrics
    RequestOutput RuntimeConfig SamplingParams SchedulerConfig ServiceClass Standing
    StepFailed StructuredOutputs Timeline UnsupportedModel __version__
""".split()


def test_all_is_sorted_and_every_name_resolves():
    assert list(octavo.__all__) == sorted(octavo.__all__)
    for name in octavo.__all__:
        assert getattr(octavo, name) is not None, name


def test_the_public_names_are_these_and_no_others():
    assert list(octavo.__all__) == PUBLIC


def test_type_checkers_see_what_the_lazy_loader_gives():
    """``__init__`` spells each name out once for either: they must agree on where it lives."""
    tree = ast.parse((ROOT / "src/octavo/__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    homes = {
        alias.name: node.module
        for node in imports
        if node.module is not None and node.module.startswith("octavo.")
        for alias in node.names
    }
    assert homes.keys() == {*PUBLIC} - {"__version__"}
    for name, home in homes.items():
        assert getattr(octavo, name) is getattr(importlib.import_module(home), name), name


def test_version_is_one_number_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert octavo.__version__ == project == importlib.metadata.version("octavo")
    assert f"## [{project}]" in (ROOT / "CHANGELOG.md").read_text()
