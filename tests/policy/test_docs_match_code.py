# SPDX-License-Identifier: Apache-2.0
"""Docs are claims; these are checked."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.types import env

ROOT = Path(__file__).parents[2]
DOCS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


def test_environment_page_lists_what_the_code_reads():
    text = (ROOT / "docs" / "environment.md").read_text()
    rows = dict(re.findall(r"^\| `(OCTAVO_\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert rows == env.VARIABLES


def test_env_reads_what_it_lists():
    source = (ROOT / "src/octavo/types/env.py").read_text()
    read = set(re.findall(r'environ\.get\("(\w+)"', source))
    assert read == set(env.VARIABLES)


def test_make_targets_in_docs_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in DOCS:
        named = set(re.findall(r"`make ([a-z-]+)", path.read_text()))
        assert named <= targets, f"{path.name} names {named - targets}"


def test_paths_in_docs_exist():
    pattern = re.compile(r"`((?:src|native|tests|benchmarks|docs|tools)/[\w./-]+)`")
    for path in DOCS:
        for name in pattern.findall(path.read_text()):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_glossary_is_sorted():
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| ([a-z][^|]*) \|", text, re.MULTILINE)[1:]
    assert words == sorted(words)


def test_log_entries_carry_machine_and_commit():
    text = (ROOT / "benchmarks" / "LOG.md").read_text()
    for entry in text.split("\n## ")[1:]:
        title = entry.splitlines()[0]
        assert re.match(r"\d{4}-\d\d-\d\d ", title), title
        assert "Machine:" in entry, title
        assert re.search(r"[Cc]ommit:? `?[0-9a-f]{7,}", entry), title
