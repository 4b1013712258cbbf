# SPDX-License-Identifier: Apache-2.0
"""How much a grammar may cost, and the checks that cost less than what they keep away."""

from __future__ import annotations

import json
from dataclasses import dataclass

from octavo.types.errors import InvalidRequest

WHITESPACE_MAX = 32  # between two parts of a JSON text: a line break and eight levels of four


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarLimits:
    """Budgets of one grammar. What exceeds one is refused with ``InvalidRequest``.

    text_bytes_max    of a schema, an expression, a grammar, all choices together
    depth_max         of brackets in it: what parses it recurses
    choices_max       strings to choose from
    tags_max          structures of a structural tag, and its triggers: each is held against each
    compile_s_max     seconds from its text to the first mask, however busy the machine is
    mask_s_max        CPU seconds for one mask; a sequence that needs longer ends with an error
    lexer_fuel_max    units of work to build the lexer, about 50,000 to a millisecond
    step_fuel_max     units of work in the lexer for one mask, about 14,000 to a millisecond
    step_items_max    Earley items for one mask, about 20,000 to a millisecond
    row_items_max     Earley items at one place of the text
    lexer_states_max  of 1 to 2 kB each
    symbols_max       in all productions
    """

    text_bytes_max: int = 256 * 1024
    depth_max: int = 96
    choices_max: int = 4096
    tags_max: int = 256
    compile_s_max: float = 10.0
    mask_s_max: float = 0.5
    lexer_fuel_max: int = 1_000_000
    step_fuel_max: int = 200_000
    step_items_max: int = 50_000
    row_items_max: int = 2_000
    lexer_states_max: int = 50_000
    symbols_max: int = 200_000


def check_size(text: str, limits: GrammarLimits, *, param: str) -> None:
    """Refuse a text that is too long, or no Unicode."""
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{param} is not valid Unicode", param=param) from None
    if num_bytes > limits.text_bytes_max:
        raise InvalidRequest(
            f"{param} has {num_bytes} bytes; at most {limits.text_bytes_max} are compiled",
            param=param,
        )


def check_depth(text: str, limits: GrammarLimits, *, param: str) -> None:
    """Refuse brackets nested too deeply. Those in strings and classes count too: the sum of what
    opens and has not closed is an upper bound, wherever a parser thinks it is."""
    depth = deepest = 0
    for char in text:
        if char in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in ")]}" and depth:
            depth -= 1
    if deepest > limits.depth_max:
        raise InvalidRequest(
            f"{param} nests {deepest} brackets; at most {limits.depth_max} are compiled",
            param=param,
        )


def parse_json(text: str, limits: GrammarLimits, *, param: str) -> object:
    """The value of a JSON text of bounded size and depth."""
    check_size(text, limits, param=param)
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep(limits, param) from None
    except ValueError as error:
        raise InvalidRequest(f"{param} is not JSON: {error}", param=param) from None
    _check_value_depth(value, limits, param)
    return value


def _check_value_depth(value: object, limits: GrammarLimits, param: str) -> None:
    level = [value]
    for _ in range(limits.depth_max + 1):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        if not inner:
            return
        level = inner
    raise _too_deep(limits, param)


def _too_deep(limits: GrammarLimits, param: str) -> InvalidRequest:
    return InvalidRequest(
        f"{param} nests too deeply; at most {limits.depth_max} levels are compiled", param=param
    )
