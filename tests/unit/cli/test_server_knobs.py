# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import fields

import pytest
import typer

from clikit import invoke
from octavo.cli.config_file import _options
from octavo.cli.main import app
from octavo.cli.server_knobs import take_config, with_server_knobs
from octavo.server.config import ServerConfig

SECRET = "sk-Tapir-271828"
SERVE = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
FLAGS = {parameter.name: parameter for parameter in SERVE.params}


def test_every_field_is_a_flag_whose_absence_is_the_default():
    for field in fields(ServerConfig):
        assert FLAGS[field.name].default is None, field.name


def parsed(*args: str) -> dict[str, object]:
    seen: dict[str, object] = {}

    @with_server_knobs
    def command(**knobs: object) -> None:
        seen.update(knobs)

    one = typer.Typer(add_completion=False)
    one.command()(command)
    one(list(args), standalone_mode=False)
    return seen


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        (("--api-key", "a", "--api-key", "b"), "api_key", ("a", "b")),
        (("--api-key-file=f",), "api_key_file", "f"),
        (("--guard-metrics",), "guard_metrics", True),
        (("--tokens-per-day=5",), "tokens_per_day", 5),
        (("--allowed-origins", "*"), "cors_origins", ("*",)),
        (("--max-body=2MiB",), "max_body_bytes", 2 * 2**20),
        (("--h11-max-incomplete-event-size", "4096"), "max_header_bytes", 4096),
        (("--shutdown-timeout=1.5",), "drain_timeout_s", 1.5),
        (("--log-format", "json"), "log_format", "json"),
        (("--otlp-traces-endpoint=http://a:1",), "otlp_traces_endpoint", "http://a:1"),
    ],
)
def test_a_flag_sets_its_field_and_no_other(args, name, value):
    knobs = parsed(*args)
    knobs["max_num_seqs"] = 3
    assert take_config(knobs) == ServerConfig(**{name: value})
    assert knobs == {"max_num_seqs": 3}


def test_no_flags_are_the_default():
    assert take_config(parsed()) == ServerConfig()


def test_a_configuration_file_may_have_them():
    names = _options(SERVE.params)
    assert {"api_key", "log_format", "cors_origins", "shutdown_timeout"} <= names.keys()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--log-format=xml",), "log_format must be one of text, json"),
        (("--requests-per-minute=5",), "limits are those of API keys"),
        (("--ssl-certfile=a",), "ssl_certfile and ssl_keyfile belong together"),
        (("--api-key-file=/no/such",), "cannot read the API keys of /no/such"),
        (("--api-key", f"{SECRET} x"), "the API key key-1 must be"),
        (("--cors-origins", "a"), "cors_origins must be"),
        (("--drain-timeout-s=-1",), "drain_timeout_s must be seconds in"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_loaded(args, message):
    result = invoke("serve", "/no/such/model.gguf", "--port", "0", *args)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"error: {message}")
    assert SECRET not in result.output


def test_no_message_of_any_mistake_shows_a_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_API_KEY", SECRET)
    config = tmp_path / "octavo.toml"
    config.write_text(f'api_key = ["{SECRET}"]\nlog_format = "xml"')
    for args in (
        ("--api-key", SECRET),
        ("--api-key", SECRET, "--no-such-flag"),
        ("--config", str(config)),
        ("--api-key", SECRET, "--port", "x"),
    ):
        result = invoke("serve", "/no/such/model.gguf", "--port", "0", *args)
        assert result.exit_code != 0
        assert SECRET not in result.output, args
