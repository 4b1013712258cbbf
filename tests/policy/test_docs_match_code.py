# SPDX-License-Identifier: Apache-2.0
"""Docs are claims; these are checked."""

from __future__ import annotations

import re
from pathlib import Path

from octavo.types import env

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "native", "tests", "tools", "benchmarks", "docs")
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


def missing_files(text: str) -> list[str]:
    """Files and folders that ``text`` names, from whichever folder it counts, and nobody has."""
    tops = [ROOT / name for name in FOLDERS]
    paths = [*tops, *(path for top in tops for path in top.rglob("*"))]
    tree = [f"/{path.relative_to(ROOT)}" for path in paths]
    named = re.findall(r"`([\w./-]+\.(?:py|cc|h)|[\w-]+(?:/[\w-]+)*/)`", text)
    return [name for name in named if not any(p.endswith("/" + name.rstrip("/")) for p in tree)]


def test_files_named_in_passing_exist():
    for path in DOCS:
        assert not missing_files(path.read_text()), path.name


def test_a_file_that_has_moved_is_noticed():
    assert missing_files("`scheduler/scheduler.py` `llm.py` `kernels/` `engines/`") == [
        "llm.py",
        "engines/",
    ]


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
