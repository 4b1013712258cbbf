# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import fields

import pytest
import typer

from clikit import Opener, invoke
from llmkit import text_after
from octavo.cli.config_file import BYTES_MAX, COMMANDS, read_config
from octavo.cli.main import app
from octavo.types.config import CacheConfig, RuntimeConfig, SchedulerConfig
from octavo.types.errors import InvalidConfig

PROMPT = ("run", "--raw", "hi", "--no-stats")


@pytest.fixture
def write(tmp_path):
    def one(text: str, name: str = "octavo.toml") -> str:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return str(file)

    return one


def test_the_file_beats_the_default_and_the_command_line_beats_the_file(write):
    config = write("max_tokens = 3\n")
    assert invoke(*PROMPT, "--config", config).stdout == text_after(2, 3) + "\n"
    assert invoke(*PROMPT, "--config", config, "-n", "2").stdout == text_after(2, 2) + "\n"
    assert invoke(*PROMPT, "-n", "2", "--config", config).stdout == text_after(2, 2) + "\n"


def test_json_says_the_same_as_toml(write):
    texts = {"a.toml": 'threads = 2\nmodel = "m"\n', "a.json": '{"threads": 2, "model": "m"}'}
    for name, text in texts.items():
        opener = Opener()
        invoke(*PROMPT, "--config", write(text, name), opener=opener)
        assert (opener.model, opener.options["threads"]) == ("m", 2)


def test_names_are_those_of_the_flags_however_they_are_spelt(write):
    for text in ('kv-cache-memory = "1MiB"', "kv_cache_memory_bytes = 1048576"):
        opener = Opener()
        assert invoke(*PROMPT, "--config", write(text), opener=opener).exit_code == 0
        assert opener.options["kv_cache_memory_bytes"] == 2**20


def test_knobs_switches_and_lists(write):
    opener = Opener()
    config = write(
        'scheduler_delay_factor = "auto"\nenable_prefix_caching = false\nswap_space = 0.5\n'
        'stop = ["x", "y"]\nstats = false\n'
    )
    result = invoke("run", "--raw", "hi", "--config", config, opener=opener)
    assert (result.exit_code, result.stderr) == (0, "")
    assert opener.options["scheduler_delay_factor"] == "auto"
    assert opener.options["enable_prefix_caching"] is False
    assert opener.options["swap_space"] == 0.5


def test_a_command_takes_its_own_table_and_leaves_the_others(write):
    config = write("max_tokens = 9\n[run]\nmax_tokens = 2\n[serve]\nport = 1\n[chat]\nhm = 1\n")
    assert invoke(*PROMPT, "--config", config).stdout == text_after(2, 2) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_tokns = 3", "octavo run has no setting 'max_tokns'; did you mean max_tokens?"),
        ("zzz = 3", "octavo run has no setting 'zzz'"),
        ("port = 8000", "octavo run has no setting 'port'"),
        ("config = 'x'", "octavo run has no setting 'config'"),
        ("[runn]\nthreads = 1", "there is no command runn; use chat, generate, run, serve"),
        ("run = 3", "run must be a table"),
        ("threads = [1, 2]", "threads takes one value"),
        ("stop = [[1]]", "stop must be text, a number or a boolean"),
        ("seed = 1979-05-27", "seed must be text, a number or a boolean"),
        (
            'kv_cache_memory = "1MB"\nkv_cache_memory_bytes = 1',
            "kv_cache_memory_bytes is another name",
        ),
        ("threads = ", "is not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(write, text, message):
    config = write(text)
    result = invoke(*PROMPT, "--config", config)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {config}")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["max_tokens = 1.5", "max_tokens = true", 'raw = "perhaps"'])
def test_a_value_of_the_wrong_kind_is_refused_as_on_the_command_line(write, text):
    result = invoke("run", "hi", "--config", write(text))
    assert result.exit_code == 2
    assert text.partition(" ")[0].replace("_", "-") in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "threads: 1", "is .toml or .json"),
        ("a", "", "is .toml or .json"),
        ("a.json", "[1]", "must hold an object"),
        ("a.json", "[" * 100_000, "is not valid JSON"),
        ("a.json", "{", "is not valid JSON"),
        ("a.toml", "#" * (BYTES_MAX + 1), "is larger than"),
    ],
)
def test_what_is_no_configuration_file(write, name, text, message):
    with pytest.raises(InvalidConfig, match=message):
        read_config(write(text, name))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidConfig, match=r"cannot read .*: No such file"):
        read_config(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="is not valid TOML"):
        read_config(str(tmp_path / "bytes.toml"))


def test_every_setting_of_the_engine_is_a_key_for_the_server(write):
    """One name in Python, on the command line and in the file: with its default, each is taken."""
    without = {"num_blocks", "num_swap_blocks"}
    settings = {
        field.name: field.default
        for config in (CacheConfig, SchedulerConfig, RuntimeConfig)
        for field in fields(config)
        if field.name not in without and field.default is not None
    }
    config = write(json.dumps({**settings, "host": "256.0.0.0"}), "all.json")
    result = invoke("serve", "/no/such/model.gguf", "--config", config)
    assert "cannot listen on 256.0.0.0:8000" in result.stderr


def test_every_command_that_runs_a_model_takes_a_file():
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        has_model = any(one.name == "model" for one in command.params)
        takes_file = any(one.name == "config" for one in command.params)
        assert takes_file == (has_model and name in COMMANDS), name
