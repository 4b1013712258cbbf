# SPDX-License-Identifier: Apache-2.0
"""Which form an answer must have, with vLLM's field names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from octavo.types.errors import InvalidRequest

FORMS = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputs:
    """Exactly one of the forms; anything else raises ``InvalidRequest``.

    json            a JSON Schema: JSON text, or the object that it stands for
    json_object     any JSON object
    regex           a regular expression that the whole answer matches
    choice          one of these strings
    grammar         a context-free grammar in Lark's or GBNF's notation
    structural_tag  free text in which tags switch to schemas: JSON text, or the object
    closes_in_time  when ``max_tokens`` runs out, only what completes the answer may be said
    disable_any_whitespace  none between the parts of a JSON answer
    """

    json: str | None = None
    json_object: bool = False
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    structural_tag: str | None = None
    closes_in_time: bool = False
    disable_any_whitespace: bool = False

    def __post_init__(self) -> None:
        _normalise(self)
        given = [name for name in FORMS if getattr(self, name) not in (None, False, ())]
        if len(given) != 1:
            what = f"got {', '.join(given)}" if given else "got none"
            raise InvalidRequest(
                f"structured_outputs takes exactly one of {', '.join(FORMS)}; {what}",
                param="structured_outputs",
            )
        for name in ("json", "regex", "grammar", "structural_tag"):
            if not isinstance(getattr(self, name), str | None):
                raise _refused(name, "must be a string")
        if any(not isinstance(text, str) for text in self.choice):
            raise _refused("choice", "must hold strings")
        for name in ("json_object", "closes_in_time", "disable_any_whitespace"):
            if not isinstance(getattr(self, name), bool):
                raise _refused(name, "must be a boolean")

    @property
    def form(self) -> str:
        """The name of the one that is given."""
        return next(name for name in FORMS if getattr(self, name) not in (None, False, ()))


def _normalise(wish: StructuredOutputs) -> None:
    put = object.__setattr__  # only here, before anyone else holds the object
    for name in ("json", "structural_tag"):
        value: object = getattr(wish, name)
        if isinstance(value, Mapping) or (isinstance(value, bool) and name == "json"):
            try:
                put(wish, name, json.dumps(value))
            except (TypeError, ValueError, RecursionError) as error:
                raise _refused(name, f"is not JSON: {error}") from None
    choice: object = wish.choice
    if choice is None:
        put(wish, "choice", ())
    elif isinstance(choice, list):
        put(wish, "choice", tuple(choice))
    elif not isinstance(choice, tuple):
        raise _refused("choice", "must be a list of strings")


def _refused(name: str, why: str) -> InvalidRequest:
    param = f"structured_outputs.{name}"
    return InvalidRequest(f"{param} {why}", param=param)
