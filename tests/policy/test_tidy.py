# SPDX-License-Identifier: Apache-2.0
"""The limits of STYLE.md, enforced: what is not a test grows."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES_PER_FUNCTION_MAX = 70
LINES_PER_FUNCTION_MEDIAN_MAX = 10
LINES_PER_FILE_MAX = 500
COLUMNS_MAX = 100
POSITIONAL_PARAMETERS_MAX = 5

# Files that may be longer, each with its reason. Data tables and reviewed generated text only.
LONG_FILES: dict[str, str] = {}

BANNED = {  # a word, and what to do instead; split so that this file does not match itself
    "TO" + "DO": "finish it, or describe it in docs/plan.md",
    "FIX" + "ME": "fix it",
    "import pic" + "kle": "pickle runs what it reads: use a format that is only data",
    "ev" + "al(": "never run text",
}

NO_FUNCTION = ("namespace", "extern", "struct", "class", "enum", "union")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*suffixes: str) -> list[Path]:
    folders = ("src", "native", "tests", "tools", "benchmarks")
    found = (path for name in folders for path in (ROOT / name).rglob("*"))
    return sorted(path for path in found if path.suffix in suffixes and path.is_file())


PYTHON = sources(".py")
CPP = sources(".cc", ".h")


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function):
            yield node


def length(node: Function) -> int:
    """Lines from ``def`` to the end, the docstring not counted: a contract may be long."""
    doc = node.body[0]
    is_doc = isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
    doc_lines = (doc.end_lineno or 0) - doc.lineno + 1 if is_doc else 0
    return (node.end_lineno or 0) - node.lineno + 1 - doc_lines


def cpp_functions(text: str) -> Iterator[tuple[int, int]]:
    """(first line, lines) of each body: formatted, it ends at the first brace in column 0."""
    begin = None
    for number, line in enumerate(text.splitlines(), 1):
        is_body = line.endswith("{") and line[:1] not in (" ", "#", "/", "}")
        if begin is None and is_body and not line.startswith(NO_FUNCTION):
            begin = number
        elif begin is not None and line.startswith("}"):
            yield begin, number - begin + 1
            begin = None


def test_python_functions_fit_on_a_screen():
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length(node)} lines"
        for path in PYTHON
        for node in functions(path)
        if length(node) > LINES_PER_FUNCTION_MAX
    ]
    assert not long, "\n".join(long)


def test_most_functions_are_short():
    lengths = [length(node) for path in PYTHON if "src" in path.parts for node in functions(path)]
    assert statistics.median(lengths) < LINES_PER_FUNCTION_MEDIAN_MAX


def test_cpp_functions_fit_on_a_screen():
    long = [
        f"{path.relative_to(ROOT)}:{begin} has {lines} lines"
        for path in CPP
        for begin, lines in cpp_functions(path.read_text())
        if lines > LINES_PER_FUNCTION_MAX
    ]
    assert not long, "\n".join(long)


def test_files_are_short_and_lines_fit():
    wrong = []
    for path in PYTHON + CPP:
        name = str(path.relative_to(ROOT))
        lines = path.read_text().splitlines()
        if len(lines) > LINES_PER_FILE_MAX and name not in LONG_FILES:
            wrong.append(f"{name} has {len(lines)} lines, limit {LINES_PER_FILE_MAX}")
        wide = [i for i, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
        wrong += [f"{name}:{i} is wider than {COLUMNS_MAX} columns" for i in wide]
    assert not wrong, "\n".join(wrong)


def test_positional_parameters_are_few():
    many = []
    for path in PYTHON:
        for node in functions(path):
            names = [a.arg for a in node.args.posonlyargs + node.args.args]
            count = len([name for name in names if name not in ("self", "cls")])
            is_fixture_user = "tests" in path.parts
            if count > POSITIONAL_PARAMETERS_MAX and not is_fixture_user and not is_command(node):
                many.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} takes {count}")
    assert not many, "\n".join(many)


def is_command(node: Function) -> bool:
    """A function that becomes a command line: its parameters are flags, given by name."""
    return any("command" in ast.unparse(decorator) for decorator in node.decorator_list) or any(
        "typer." in ast.unparse(arg.annotation) for arg in node.args.args if arg.annotation
    )


def test_every_file_names_its_licence():
    missing = [
        str(path.relative_to(ROOT))
        for path in PYTHON + CPP
        if "SPDX-License-Identifier: Apache-2.0" not in path.read_text()[:100]
    ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("word", BANNED)
def test_banned_words_stay_out(word: str):
    found = [
        f"{path.relative_to(ROOT)}: {BANNED[word]}"
        for path in PYTHON + CPP
        if re.search(r"(?<![\w.])" + re.escape(word), path.read_text())
    ]
    assert not found, "\n".join(found)


def test_only_env_reads_the_environment():
    allowed = {"src/octavo/types/env.py"}
    found = [
        str(path.relative_to(ROOT))
        for path in PYTHON
        if "src" in path.parts
        and re.search(r"os\.(environ|getenv)", path.read_text())
        and str(path.relative_to(ROOT)) not in allowed
    ]
    assert not found, f"read variables in types/env.py instead: {found}"


def test_only_ops_touches_the_extension():
    """The import linter sees no extension modules, so this part of the tower is checked here."""
    found = [
        str(path.relative_to(ROOT))
        for path in PYTHON
        if re.search(r"^\s*(from|import) .*\b_native\b", path.read_text(), re.MULTILINE)
        and "src/octavo/ops/" not in str(path)
    ]
    assert not found, f"go through octavo.ops instead: {found}"


def test_the_limits_have_teeth():
    body = "\n".join("    x = 1" for _ in range(LINES_PER_FUNCTION_MAX))
    (node,) = [n for n in ast.walk(ast.parse(f"def f():\n{body}")) if isinstance(n, Function)]
    assert length(node) > LINES_PER_FUNCTION_MAX
    text = "void f() {\n" + "  x;\n" * LINES_PER_FUNCTION_MAX + "}\n"
    assert [lines for _, lines in cpp_functions(text)] == [LINES_PER_FUNCTION_MAX + 2]
