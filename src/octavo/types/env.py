# SPDX-License-Identifier: Apache-2.0
"""The only reader of octavo's environment variables; docs/environment.md lists them, a test
compares.

An empty variable counts as unset. A bad value raises ``InvalidConfig``: a typo must not silently
turn one measurement into another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from octavo.types.errors import InvalidConfig

VARIABLES = {
    "OCTAVO_CACHE": "directory for pulled models (default: the user's cache directory)",
    "OCTAVO_DEBUG": "1 shows the traceback of an error that is otherwise one line",
    "OCTAVO_ISA": "kernel table by name, e.g. avx2 or scalar (default: the best that runs here)",
    "OCTAVO_SPIN_US": "microseconds a waiting compute thread spins before it parks (default: 50)",
}


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where models are kept, if the user chose a place."""
    text = environ.get("OCTAVO_CACHE", "")
    return Path(text).expanduser() if text else None


def for_child(
    changes: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables of a program that octavo starts: all of ours, with ``changes``."""
    return {**environ, **changes}


def is_debug(environ: Mapping[str, str] = os.environ) -> bool:
    text = environ.get("OCTAVO_DEBUG", "")
    if text not in ("", "0", "1"):
        raise InvalidConfig(f"OCTAVO_DEBUG must be 0 or 1, got {text!r}")
    return text == "1"


def isa(environ: Mapping[str, str] = os.environ) -> str | None:
    """The forced kernel table, unchecked: the native core knows which names exist."""
    return environ.get("OCTAVO_ISA") or None


def spin_us(environ: Mapping[str, str] = os.environ) -> int | None:
    text = environ.get("OCTAVO_SPIN_US", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or int(text) > 1_000_000:
        raise InvalidConfig(f"OCTAVO_SPIN_US must be an integer in [0, 1000000], got {text!r}")
    return int(text)
