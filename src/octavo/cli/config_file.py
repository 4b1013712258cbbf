# SPDX-License-Identifier: Apache-2.0
"""``--config FILE``: flags from a file, each under its own name.

Top-level keys hold for the command that reads them, and a table named after a command for that one
alone, so that several may share a file. The command line beats the file, and the file beats an
environment variable or a default.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.types.errors import InvalidConfig

COMMANDS = ("chat", "generate", "run", "serve")
BYTES_MAX = 2**20  # a file of settings is some kilobytes


def _load(ctx: typer.Context, path: str | None) -> str | None:
    """An option's callback: what the file says becomes the defaults of the options after it."""
    if path is not None and not ctx.resilient_parsing:
        ctx.default_map = {**(ctx.default_map or {}), **_defaults(ctx, path)}
    return path


Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_load,
        help="Take flags from a .toml or .json file, by their names; those given here win.",
    ),
]


def read_config(path: str) -> dict[str, object]:
    """The document. Raises ``InvalidConfig`` that names the file, and the line where it can."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".toml", ".json"):
        raise InvalidConfig(f"a configuration file is .toml or .json, got {path}")
    try:
        with Path(path).open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        if len(text) > BYTES_MAX:
            raise InvalidConfig(f"{path} is larger than {BYTES_MAX} bytes")
        loads: Any = tomllib.loads if suffix == ".toml" else json.loads
        document = loads(text.decode("utf-8-sig"))
    except OSError as error:
        raise InvalidConfig(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path} is not valid {suffix[1:].upper()}: {error}") from None
    if not isinstance(document, dict):
        raise InvalidConfig(f"{path} must hold an object of settings")
    return document


def _defaults(ctx: typer.Context, path: str) -> dict[str, object]:
    """Values by the names that click has for the options."""
    command, known = ctx.command.name or "", _options(ctx.command.params)
    document = read_config(path)
    own: dict[str, object] = {}
    for key, value in document.items():
        if key in COMMANDS:
            if not isinstance(value, dict):
                raise InvalidConfig(f"{path}: {key} must be a table of that command's settings")
            own |= value if key == command else {}
        elif isinstance(value, dict):
            raise InvalidConfig(f"{path}: there is no command {key}; use {', '.join(COMMANDS)}")
    settings = {key: value for key, value in document.items() if key not in COMMANDS} | own
    values: dict[str, object] = {}
    for key, value in settings.items():
        option = known.get(key.replace("-", "_"))
        if option is None:
            raise InvalidConfig(f"{path}: {_unknown(key, command, known)}")
        name = str(option.name)
        if name in values:
            raise InvalidConfig(f"{path}: {key} is another name of a setting that is given already")
        values[name] = _checked(path, key, option, value)
    return values


def _options(parameters: Iterable[Any]) -> dict[str, Any]:
    """Options by every long name that they have, with underscores."""
    return {
        name.lstrip("-").replace("-", "_"): one
        for one in parameters
        if one.param_type_name == "option" and one.name not in ("config", "help")
        for name in one.opts
        if name.startswith("--")
    }


def _unknown(key: str, command: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(key.replace("-", "_"), known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"octavo {command} has no setting {key!r}{hint}"


def _checked(path: str, key: str, option: Any, value: object) -> object:
    """As it would stand on the command line, so that it is parsed, and refused, as strictly."""
    items = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not option.multiple:
        raise InvalidConfig(f"{path}: {key} takes one value, got an array")
    for item in items:
        if not isinstance(item, str | int | float):
            raise InvalidConfig(f"{path}: {key} must be text, a number or a boolean")
    texts = [item if isinstance(item, str) else json.dumps(item) for item in items]
    return texts if option.multiple else texts[0]
