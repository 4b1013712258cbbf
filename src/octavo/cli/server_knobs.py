# SPDX-License-Identifier: Apache-2.0
"""The flags of ``octavo serve`` that set one field of ``ServerConfig`` each, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, TypeVar

import typer

from octavo.cli.flags import parse_bytes
from octavo.cli.knobs import add_options, default_of
from octavo.server.config import ServerConfig

F = TypeVar("F", bound=Callable[..., None])

ACCESS, CONNECTIONS, RECORDS = "Access", "Connections", "Log and traces"


@dataclass(frozen=True, slots=True)
class ServerKnob:
    """``also``: other names of the flag, which scripts for other servers use."""

    field: str
    metavar: str | None
    help: str
    also: tuple[str, ...] = ()
    parser: Callable[[str], Any] | None = None


_KNOBS: dict[str, tuple[ServerKnob, ...]] = {
    ACCESS: (
        ServerKnob(
            "api_key",
            "KEY",
            "Let in who sends this key; may be given several times. Others on this machine can "
            "read a command line: OCTAVO_API_KEY and --api-key-file are better.",
        ),
        ServerKnob(
            "api_key_file",
            "FILE",
            "Let in who sends a key of this file. A line is KEY, or NAME KEY and limits such as "
            "tokens_per_minute=10000.",
        ),
        ServerKnob("guard_metrics", None, "Ask for a key at /metrics, too."),
        ServerKnob(
            "requests_per_minute", "N", "What each key may ask; more is a 429. 0: no limit."
        ),
        ServerKnob(
            "tokens_per_minute", "TOKENS", "Of prompts and answers, for each key. 0: no limit."
        ),
        ServerKnob("tokens_per_day", "TOKENS", "Likewise in a day. 0: no limit."),
        ServerKnob(
            "cors_origins",
            "URL",
            "Let web pages from this origin use the server; may be given several times. * is all.",
            also=("--allowed-origins",),
        ),
    ),
    CONNECTIONS: (
        ServerKnob("ssl_certfile", "FILE", "Speak HTTPS with this certificate (PEM, with chain)."),
        ServerKnob("ssl_keyfile", "FILE", "The private key of the certificate (PEM)."),
        ServerKnob(
            "max_body_bytes",
            "SIZE",
            "Refuse larger bodies with 413.",
            also=("--max-body",),
            parser=parse_bytes,
        ),
        ServerKnob(
            "max_header_bytes",
            "SIZE",
            "Refuse requests with more headers.",
            also=("--h11-max-incomplete-event-size",),
            parser=parse_bytes,
        ),
        ServerKnob(
            "drain_timeout_s",
            "SECONDS",
            "What running answers get to finish after SIGTERM or Ctrl-C.",
            also=("--shutdown-timeout",),
        ),
    ),
    RECORDS: (
        ServerKnob("log_format", "NAME", "text, or json: one object a line."),
        ServerKnob("log_prompts", None, "Show in the log what was asked."),
        ServerKnob(
            "otlp_traces_endpoint",
            "URL",
            "Send a span of each request to this OpenTelemetry collector (OTLP over HTTP). Needs "
            "the extra octavo[otel].",
        ),
    ),
}

_TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "tuple[str, ...]": list[str],
}
_FIELDS = {one.name: one for one in fields(ServerConfig)}


def with_server_knobs(command: F) -> F:
    """Give a command, which takes ``**knobs``, a flag for each of the above."""
    annotations = {
        knob.field: _annotation(knob, _FIELDS[knob.field], panel)
        for panel, panel_knobs in _KNOBS.items()
        for knob in panel_knobs
    }
    return add_options(command, annotations)


def take_config(knobs: dict[str, Any]) -> ServerConfig:
    """What the flags ask for; takes it out of ``knobs``. Raises ``InvalidConfig``."""
    given = {name: knobs.pop(name) for name in _FIELDS if name in knobs}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in given.items()
        if value is not None
    }
    return ServerConfig(**values)


def _annotation(knob: ServerKnob, field: Field[Any], panel: str) -> Any:
    flag = "--" + knob.field.replace("_", "-")
    kind = str(field.type).replace(" | None", "")
    if kind == "bool":
        flag += f"/--no-{flag.removeprefix('--')}"
    option = typer.Option(
        flag,
        *knob.also,
        metavar=knob.metavar,
        parser=knob.parser,
        help=f"{knob.help} Default: {default_of(field)}.",
        rich_help_panel=panel,
        show_default=False,
    )
    return Annotated[_TYPES[kind] | None, option]
