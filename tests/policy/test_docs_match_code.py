# SPDX-License-Identifier: Apache-2.0
"""Docs are claims; these are checked."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from enum import Enum
from pathlib import Path

import pytest

from octavo.llm.options import engine_config
from octavo.server.config import ServerConfig
from octavo.types import env
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.config import CacheConfig, ChatConfig, RuntimeConfig, SchedulerConfig
from octavo.types.errors import InvalidConfig
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import LEGAL_EDGES

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


def calls(program: str) -> list[tuple[str, dict[str, object]]]:
    """Each call of a plain name, with its keyword arguments that are literals."""
    return [
        (
            node.func.id,
            {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)},
        )
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]


def test_options_in_readme_exist():
    """The constructors refuse names and values that are not theirs, so they are called."""
    makers = {
        "LLM": lambda **options: engine_config("a model", options, stacklevel=1),
        "SamplingParams": SamplingParams,
        "BeamSearchParams": BeamSearchParams,
    }
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    made = [
        makers[name](**options) for p in programs for name, options in calls(p) if name in makers
    ]
    assert len(made) >= 5


def test_glossary_is_sorted():
    text = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^\| ([a-z][^|]*) \|", text, re.MULTILINE)[1:]
    assert words == sorted(words)


def number(text: str) -> float:
    """``2^20``, ``0.5`` or ``8``."""
    base, _, exponent = text.partition("^")
    return int(base) ** int(exponent) if exponent else ast.literal_eval(base)


class TestSettingsPage:
    """docs/settings.md, row by row against the dataclasses."""

    CONFIGS = (CacheConfig, SchedulerConfig, RuntimeConfig, ChatConfig, ServerConfig)

    def rows(self, config: type) -> dict[str, tuple[str, str]]:
        """{name: (default, range)} in the section of one class."""
        text = (ROOT / "docs" / "settings.md").read_text()
        section = text.split(f"\n## {config.__name__}\n")[1].split("\n## ")[0]
        found = re.findall(r"^\| `(\w+)` \| [^|]+ \| `(.+?)` \| (.+?) \| .+ \|$", section, re.M)
        assert len(found) == section.count("\n| `")
        return {name: (default, limits) for name, default, limits in found}

    @pytest.mark.parametrize("config", CONFIGS)
    def test_names_and_defaults(self, config: type) -> None:
        listed = {name: ast.literal_eval(row[0]) for name, row in self.rows(config).items()}
        actual = {field.name: field.default for field in fields(config)}
        assert {k: (type(v), v) for k, v in listed.items()} == {
            k: (type(v), v) for k, v in actual.items()
        }

    @pytest.mark.parametrize("config", CONFIGS)
    def test_ranges(self, config: type) -> None:
        """Both ends are taken and what lies beyond is refused; 8 is the grain of block_size."""
        for name, (_, limits) in self.rows(config).items():
            if interval := re.match(r"\[([\d.^]+), ([\d.^]+)\]", limits):
                low, high = map(number, interval.groups())
                for value in (low, high):
                    config(**{name: value})
                for value in (low - 8, high + 8):
                    with pytest.raises(InvalidConfig, match=name):
                        config(**{name: value})

    @pytest.mark.parametrize("config", CONFIGS)
    def test_choices(self, config: type) -> None:
        for name, (_, limits) in self.rows(config).items():
            choices = re.findall(r'`"(\w+)"`', limits)
            for value in choices:
                config(**{name: value})
            if choices:
                with pytest.raises(InvalidConfig) as refusal:
                    config(**{name: "?"})
                if "[" not in limits:
                    assert f"one of {', '.join(choices)};" in str(refusal.value)


def sampling_rows() -> dict[str, str]:
    """{name: default} of docs/sampling.md."""
    text = (ROOT / "docs" / "sampling.md").read_text()
    return dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))


def test_sampling_page_lists_the_fields_with_their_defaults() -> None:
    defaults = {field.name: field.default for field in fields(SamplingParams)}
    enums = {str(value): value for value in defaults.values() if isinstance(value, Enum)}
    listed = {
        name: enums[text] if text in enums else ast.literal_eval(text)
        for name, text in sampling_rows().items()
    }
    assert listed == defaults


def test_state_machine_in_docs_is_the_one_in_the_code():
    text = (ROOT / "docs" / "scheduling.md").read_text()
    listed = re.findall(r"^\| (\w+) → (\w+) \|", text, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert set(listed) == {
        (before.value, after.value) for before, edges in LEGAL_EDGES.items() for after in edges
    }


def test_log_entries_carry_machine_and_commit():
    text = (ROOT / "benchmarks" / "LOG.md").read_text()
    for entry in text.split("\n## ")[1:]:
        title = entry.splitlines()[0]
        assert re.match(r"\d{4}-\d\d-\d\d ", title), title
        assert "Machine:" in entry, title
        assert re.search(r"[Cc]ommit:? `?[0-9a-f]{7,}", entry), title
