# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from clikit import invoke
from octavo.cli.serve import shows_books


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_the_books_are_open_to_this_machine(host):
    assert shows_books(host, None)
    assert not shows_books(host, False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.org", ""])
def test_the_books_are_closed_to_others(host):
    assert not shows_books(host, None)
    assert shows_books(host, True)


def test_two_models_are_a_mistake_and_not_a_choice():
    for args in (["a.gguf", "--model", "b.gguf"], ["-m", "a.gguf", "a.gguf"]):
        result = invoke("serve", *args, "--port", "0")
        assert result.exit_code == 2
        assert "both name a model" in result.stderr


def test_the_model_on_the_command_line_beats_the_one_in_the_file(tmp_path):
    config = tmp_path / "octavo.toml"
    config.write_text('model = "/no/such/file.gguf"')
    for args, name in (([], "file"), (["/no/such/argument.gguf"], "argument")):
        result = invoke("serve", *args, "--port", "0", "--config", str(config))
        assert f"/no/such/{name}.gguf" in result.stderr
