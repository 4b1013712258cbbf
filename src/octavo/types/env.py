# SPDX-License-Identifier: Apache-2.0
"""The only reader of octavo's environment variables; docs/environment.md lists them, a test
compares.

An empty variable counts as unset. A bad value raises ``InvalidConfig``: a typo must not silently
turn one measurement into another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from octavo.types.errors import InvalidConfig

VARIABLES = {
    "OCTAVO_API_KEY": "a key that `octavo serve` takes, and that commands which ask it send",
    "OCTAVO_CACHE": "directory for pulled models (default: the user's cache directory)",
    "OCTAVO_CHAOS": "faults on purpose, e.g. preempt:0.3,swapfail:0.05,abort:0.01,stepfail:0.01",
    "OCTAVO_DEBUG": "1 shows the traceback of an error that is otherwise one line",
    "OCTAVO_ISA": "kernel table by name, e.g. avx2 or scalar (default: the best that runs here)",
    "OCTAVO_SPIN_US": "microseconds a waiting compute thread spins before it parks (default: 50)",
}


@dataclass(frozen=True, slots=True)
class ChaosRates:
    """How often the engine does to itself what fate does seldom; each a probability per step, but
    ``swapfail`` per swap, ``dropabort`` per message that a client has gone and ``lostref`` per
    sequence that gives its blocks up.
    """

    preempt: float = 0.0
    swapfail: float = 0.0
    abort: float = 0.0
    stepfail: float = 0.0
    dropabort: float = 0.0
    lostref: float = 0.0


def api_key(environ: Mapping[str, str] = os.environ) -> str | None:
    """The key of a server, unchecked. A secret: never in a message."""
    return environ.get("OCTAVO_API_KEY") or None


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where models are kept, if the user chose a place."""
    text = environ.get("OCTAVO_CACHE", "")
    return Path(text).expanduser() if text else None


def chaos(environ: Mapping[str, str] = os.environ) -> ChaosRates | None:
    """The faults to plant, as ``name:probability`` pairs with commas; None when there are none."""
    text = environ.get("OCTAVO_CHAOS", "")
    if not text:
        return None
    names = [field.name for field in fields(ChaosRates)]
    rates: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition(":")
        rate = _probability(value)
        if name not in names or name in rates or rate is None:
            raise InvalidConfig(
                f"OCTAVO_CHAOS must be name:probability pairs, names {', '.join(names)}, each once,"
                f" probabilities in [0, 1]; got {part!r}"
            )
        rates[name] = rate
    return ChaosRates(**rates)


def _probability(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= 1.0 else None


def for_child(
    changes: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The variables of a program that octavo starts: all of ours but the key, with ``changes``."""
    passed = {name: value for name, value in environ.items() if name != "OCTAVO_API_KEY"}
    return {**passed, **changes}


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
