# SPDX-License-Identifier: Apache-2.0
"""What an import may pull in, measured in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "tokenizers", "fastapi", "uvicorn", "huggingface_hub", "rich", "typer", "jinja2")


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_octavo_loads_nothing_heavy():
    loaded = modules_after("import octavo")
    assert not [name for name in (*HEAVY, "octavo._native") if name in loaded]


@pytest.mark.parametrize("package", ["types", "cache", "scheduler", "metrics", "formats"])
def test_leaves_and_control_plane_need_only_the_standard_library(package: str):
    code = f"import pkgutil, importlib, octavo.{package} as p"
    code += "\nfor m in pkgutil.walk_packages(p.__path__, p.__name__ + '.'):"
    code += "\n    importlib.import_module(m.name)"
    loaded = modules_after(code)
    assert not [name for name in (*HEAVY, "octavo._native") if name in loaded]


def test_nothing_that_serves_needs_numpy_or_torch():
    loaded = modules_after("import octavo.assemble, octavo.server.app, octavo.cli.main, octavo.llm")
    assert not {"numpy", "torch"} & loaded
