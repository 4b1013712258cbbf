# SPDX-License-Identifier: Apache-2.0
"""What an import may pull in, measured in a fresh interpreter."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "tokenizers", "fastapi", "uvicorn", "huggingface_hub", "rich", "typer", "jinja2")


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_octavo_loads_nothing_heavy():
    loaded = modules_after("import octavo")
    assert not [name for name in (*HEAVY, "octavo._native") if name in loaded]


@pytest.mark.parametrize(
    "package", ["types", "cache", "scheduler", "engine", "metrics", "formats", "machine"]
)
def test_leaves_and_control_plane_need_only_the_standard_library(package: str):
    code = f"import pkgutil, importlib, octavo.{package} as p"
    code += "\nfor m in pkgutil.walk_packages(p.__path__, p.__name__ + '.'):"
    code += "\n    importlib.import_module(m.name)"
    loaded = modules_after(code)
    assert not [name for name in (*HEAVY, "octavo._native") if name in loaded]


def test_nothing_that_serves_needs_numpy_or_torch():
    loaded = modules_after("import octavo.assemble, octavo.server.app, octavo.cli.main, octavo.llm")
    assert not {"numpy", "torch"} & loaded


CLOCKS_AND_DICE = re.compile(
    r"^\s*(import (time|random|secrets)|from (time|secrets|datetime) )", re.M
)


@pytest.mark.parametrize("package", ["types", "cache", "scheduler", "engine", "metrics"])
def test_the_control_plane_is_handed_its_clock_and_its_randomness(package: str):
    """What reads the clock itself cannot be simulated; ``from random import Random`` is a type."""
    sources = sorted((ROOT / "src" / "octavo" / package).rglob("*.py"))
    assert sources
    assert not [path.name for path in sources if CLOCKS_AND_DICE.search(path.read_text())]


def test_a_clock_would_be_noticed():
    for line in ("import time", "    from time import monotonic", "import random"):
        assert CLOCKS_AND_DICE.search(f"x = 1\n{line}\n")
    assert not CLOCKS_AND_DICE.search("from random import Random\ntimes = 1\n")
