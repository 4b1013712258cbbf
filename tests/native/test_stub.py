# SPDX-License-Identifier: Apache-2.0
"""``_native.pyi`` is what mypy believes: it must name what the extension has, and nothing else."""

from __future__ import annotations

import ast
import importlib
from dataclasses import fields
from pathlib import Path

from octavo.types.step import RowSampling

STUB = Path(__file__).parents[2] / "src" / "octavo" / "_native.pyi"


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def members(node: ast.ClassDef) -> set[str]:
    """Methods, properties and enum members of a class in the stub."""
    names = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
    for part in node.body:
        if isinstance(part, ast.Assign):
            names += [target.id for target in part.targets if isinstance(target, ast.Name)]
    return public(names)


def differences(stub: str) -> list[str]:
    native = importlib.import_module("octavo._native")
    nodes = [n for n in ast.parse(stub).body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    wrong = sorted(public(dir(native)) ^ {node.name for node in nodes})
    for node in nodes:
        if isinstance(node, ast.ClassDef) and hasattr(native, node.name):
            has = public(list(vars(getattr(native, node.name))))
            wrong += [f"{node.name}.{name}" for name in sorted(has ^ members(node))]
    return wrong


def test_the_stub_names_what_the_extension_has() -> None:
    assert differences(STUB.read_text()) == []


def test_a_stale_stub_is_noticed() -> None:
    text = STUB.read_text()
    assert differences(text.replace("def finish_loading", "def finish_load")) == [
        "Decoder.finish_load",
        "Decoder.finish_loading",
    ]
    assert differences(text + "def gone() -> None: ...\n") == ["gone"]


def test_settings_have_the_same_names_and_defaults_on_both_sides() -> None:
    """A setting at its default is not even told to the core."""
    spec = importlib.import_module("octavo._native").SamplingSpec()
    for field in fields(RowSampling):
        value = getattr(spec, field.name)
        value = tuple(value) if isinstance(value, list) else value
        assert (field.name, value) == (field.name, field.default)
