# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from clikit import invoke
from octavo.hub import ALIASES


def test_models_says_which_are_here(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    alias = ALIASES["gemma3-270m"]
    path = tmp_path / "models" / alias.name / alias.file_name
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(alias.size_bytes)
    lines = invoke("models").stdout.splitlines()
    assert lines[0].startswith("smollm2-135m (default): ")
    assert "98.4 MB, not pulled" in lines[1]
    assert str(path) in lines[3]
    pulled = invoke("pull", alias.name)
    assert (pulled.exit_code, pulled.stdout) == (0, f"{path}\n")


def test_pull_of_a_local_file_is_its_path(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    assert invoke("pull", str(path)).stdout == f"{path}\n"
