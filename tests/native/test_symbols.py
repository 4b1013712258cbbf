# SPDX-License-Identifier: Apache-2.0
"""Kernel objects export their tables and nothing else.

A function that an AVX2 object shares with other objects (any weak symbol) may be the copy that the
linker keeps, and would then run on a CPU without AVX2.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"
KERNELS = NATIVE / "src" / "kernels"
BASE_FLAGS = ["-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]
TABLE = re.compile(r"^octavo::\w+::k[A-Z]\w*$")


def isa_folders() -> list[str]:
    """Folders of kernels that are compiled with instruction-set flags."""
    folders = (path.name for path in KERNELS.iterdir() if path.is_dir())
    return sorted(name for name in folders if name not in {"scalar", "neon"})


def isa_flags(folder: str) -> list[str]:
    """The flags that native/CMakeLists.txt gives to one folder."""
    text = (NATIVE / "CMakeLists.txt").read_text()
    variable = re.search(rf"GLOB (\w+) CONFIGURE_DEPENDS src/kernels/{folder}/\*\.cc", text)
    assert variable, f"native/CMakeLists.txt does not build src/kernels/{folder}"
    flags = re.search(rf'\${{{variable[1]}}} PROPERTIES COMPILE_OPTIONS\s+"([^"]+)"', text)
    assert flags, f"native/CMakeLists.txt gives no flags to src/kernels/{folder}"
    return flags[1].split(";")


def compiled(source: Path, folder: str, out: Path) -> Path:
    compiler = os.environ.get("CXX", "g++")
    launcher = [path] if (path := shutil.which("ccache")) else []
    includes = [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"]
    target = out / f"{folder}_{source.name}.o"
    command = [*launcher, compiler, *BASE_FLAGS, *isa_flags(folder), *includes, "-c", str(source)]
    subprocess.run([*command, "-o", str(target)], check=True, capture_output=True, text=True)
    return target


def objects(out: Path) -> Iterator[tuple[str, Path]]:
    """(folder, object) of each kernel source: of OCTAVO_NATIVE_BUILD if set, else compiled."""
    build = os.environ.get("OCTAVO_NATIVE_BUILD")
    for folder in isa_folders():
        for source in sorted((KERNELS / folder).glob("*.cc")):
            if build is None:
                yield folder, compiled(source, folder, out)
                continue
            found = sorted(Path(build).rglob(f"kernels/{folder}/{source.name}.o"))
            assert found, f"{build} holds no object of {source}"
            yield folder, found[0]


def defined_symbols(path: Path) -> list[str]:
    command = ["nm", "--demangle", "--defined-only", "--extern-only", str(path)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [line.split(maxsplit=2)[2] for line in lines if len(line.split(maxsplit=2)) == 3]


needs_x86_tools = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"} or shutil.which("nm") is None,
    reason="only x86-64 builds have kernel folders with instruction-set flags, and nm reads them",
)


@needs_x86_tools
def test_kernel_objects_export_only_tables(tmp_path: Path) -> None:
    seen = set()
    for folder, path in objects(tmp_path):
        symbols = defined_symbols(path)
        strays = [name for name in symbols if not TABLE.match(name)]
        assert not strays, f"{path} also exports {strays}"
        assert all(name.startswith(f"octavo::{folder}::") for name in symbols), symbols
        seen.update(symbols)
    assert "octavo::avx2::kTable" in seen


@needs_x86_tools
def test_a_shared_inline_function_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "stray.cc"
    source.write_text(
        "namespace octavo::avx2 {\n"
        "inline __attribute__((noinline)) int shared(int x) { return x + 1; }\n"
        "int (*volatile user)(int) = shared;\n"
        "}\n"
    )
    symbols = defined_symbols(compiled(source, "avx2", tmp_path))
    assert "octavo::avx2::shared(int)" in [name for name in symbols if not TABLE.match(name)]
