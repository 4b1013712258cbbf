# SPDX-License-Identifier: Apache-2.0
"""Checks of values from outside, each an ``InvalidRequest`` that names the field."""

from __future__ import annotations

from collections.abc import Mapping

from octavo.types.errors import InvalidRequest

SHOWN_MAX = 60  # characters of a refused value that a message repeats
UNBOUNDED = 2**31 - 1  # an upper end from here on is the type's, and tells a caller nothing


def check_number(name: str, value: object, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]  # NaN: neither side
        raise InvalidRequest(f"{name} must be in [{low}, {high}], got {shown(value)}", param=name)


def check_above(name: str, value: object, low: float, high: float) -> None:
    """``check_number`` without ``low`` itself."""
    check_number(name, value, low, high)
    if value == low:
        raise InvalidRequest(f"{name} must be above {low}, got {value!r}", param=name)


def check_integer(name: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        limits = f">= {low}" if high >= UNBOUNDED else f"in [{low}, {high}]"
        raise InvalidRequest(f"{name} must be an integer {limits}, got {shown(value)}", param=name)


def check_switch(name: str, value: object) -> None:
    """A string is true whatever it says, so only a real boolean can be meant."""
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} must be a boolean, got {shown(value)}", param=name)


def as_tuple(name: str, value: object) -> tuple[object, ...]:
    """A list as a tuple; None as an empty one. A single string stands for a list of it."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple):
        return tuple(value)
    raise InvalidRequest(f"{name} must be a list, got {shown(value)}", param=name)


def as_logit_bias(value: object, limit: float) -> tuple[tuple[int, float], ...]:
    """``{id: bias}`` in order of ids, which JSON spells as strings; pairs are taken too."""
    if value is None:
        return ()
    pairs = [*value.items()] if isinstance(value, Mapping) else value
    if not isinstance(pairs, list | tuple) or not all(_is_pair(pair) for pair in pairs):
        raise InvalidRequest(
            f"logit_bias must map token ids to numbers, got {shown(value)}", param="logit_bias"
        )
    biases: dict[int, float] = {}
    for key, bias in pairs:
        token_id = _as_id(key)
        where = f"logit_bias[{token_id}]"
        is_number = isinstance(bias, int | float) and not isinstance(bias, bool)
        if not is_number or not -limit <= bias <= limit:
            raise InvalidRequest(
                f"{where} must be in [{-limit}, {limit}], got {shown(bias)}", param="logit_bias"
            )
        if token_id in biases:
            raise InvalidRequest(f"{where} is given twice", param="logit_bias")
        biases[token_id] = float(bias)
    return tuple(sorted(biases.items()))


def shown(value: object) -> str:
    """Short. An int beyond 4300 digits has no repr at all."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a huge integer"
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _as_id(key: object) -> int:
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10:
        return int(key)
    if type(key) is int and 0 <= key < 2**31:
        return key
    raise InvalidRequest(
        f"logit_bias has the key {shown(key)}, which is no token id", param="logit_bias"
    )
