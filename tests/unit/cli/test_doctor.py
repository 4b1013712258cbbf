# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from clikit import invoke
from octavo.cli.doctor import render


def test_json_and_text_tell_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE", str(tmp_path))
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "mine.gguf").write_bytes(b"x" * 2000)
    result = invoke("doctor", "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts["threads"]["count"] >= 1
    assert facts["memory"]["total_bytes"] > 0
    assert facts["models"]["pulled"] == {"mine": 2000}
    text = invoke("doctor").stdout
    assert facts["threads"]["reason"] in text
    assert "mine (2.0 kB)" in text
    assert str(tmp_path) in text


def test_text_has_one_line_per_fact_and_says_none():
    lines = render({"memory": {"total_bytes": 2_000_000, "cgroup_limit_bytes": None}})
    assert [line.split() for line in lines] == [
        ["memory"],
        ["total", "2.0", "MB"],
        ["cgroup", "limit", "none"],
    ]
