# SPDX-License-Identifier: Apache-2.0
"""Which form an answer must have, with vLLM's field names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from octavo.types.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class StructuredOutputs:
    """Exactly one of the forms; anything else raises ``InvalidRequest``.

    json            a JSON Schema, as JSON text
    json_object     any JSON object
    regex           a regular expression that the whole answer matches
    choice          one of these strings
    grammar         a context-free grammar in Lark's or GBNF's notation
    structural_tag  JSON text: free text in which tags switch to schemas
    closes_in_time  near ``max_tokens`` only what completes the answer may be said
    """

    json: str | None = None
    json_object: bool = False
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    structural_tag: str | None = None
    closes_in_time: bool = False

    def __post_init__(self) -> None:
        names = [field.name for field in fields(self) if field.name != "closes_in_time"]
        given = [name for name in names if getattr(self, name) not in (None, False, ())]
        if len(given) != 1:
            what = f"got {', '.join(given)}" if given else "got none"
            raise InvalidRequest(
                f"structured_outputs takes exactly one of {', '.join(names)}; {what}",
                param="structured_outputs",
            )
