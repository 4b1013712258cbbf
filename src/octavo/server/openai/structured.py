# SPDX-License-Identifier: Apache-2.0
"""The ways to ask for a form of the answer: OpenAI's, vLLM's, and vLLM's older one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from octavo.server.errors import shown
from octavo.server.openai.schemas import GenerationRequest
from octavo.types.errors import InvalidRequest
from octavo.types.structured_outputs import FORMS, StructuredOutputs

GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
SWITCHES = ("closes_in_time", "disable_any_whitespace")
# Fields of vLLM's object that octavo does not have, with the values that ask for nothing.
IDLE: dict[str, tuple[object, ...]] = {
    "disable_additional_properties": (None, False),
    "disable_fallback": (None, False, True),
    "whitespace_pattern": (None,),
}
SCHEMA_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # as OpenAI has it


def given_form(request: GenerationRequest) -> str | None:
    """The field that asks for a form; None when the answer is free."""
    response_format = request.response_format
    given = [name for name in GUIDED if getattr(request, name) is not None]
    if request.structured_outputs is not None:
        given.append("structured_outputs")
    if response_format is not None and response_format != {"type": "text"}:
        given.append("response_format")
    if len(given) > 1:
        raise InvalidRequest(
            f"{' and '.join(given)} each ask for a form of the answer; give one", param=given[1]
        )
    return given[0] if given else None


def structured_outputs(request: GenerationRequest) -> StructuredOutputs | None:
    """What the request asks for, or None. Raises ``InvalidRequest`` that names the field."""
    name = given_form(request)
    if name is None:
        return None
    with own_names(request):
        if name == "response_format":
            return _from_response_format(request.response_format)
        if name == "structured_outputs":
            return _from_object(request.structured_outputs)
        value: Any = getattr(request, name)
        return StructuredOutputs(**{name.removeprefix("guided_"): _schema_text(name, value)})


@contextmanager
def own_names(request: GenerationRequest) -> Iterator[None]:
    """Refusals of what is inside name the field that the request has used."""
    try:
        yield
    except InvalidRequest as error:
        prefix = "structured_outputs"
        name = given_form(request)
        if name in (None, prefix) or not (error.param or "").startswith(prefix):
            raise
        form = (error.param or "").removeprefix(prefix).lstrip(".")
        own = str(name)
        if name == "response_format":
            is_schema = form == "json" and request.response_format.get("type") == "json_schema"
            own = "response_format.json_schema.schema" if is_schema else "response_format"
        message = str(error).replace(str(error.param), own, 1)
        raise InvalidRequest(message, param=own) from None


def _from_response_format(value: object) -> StructuredOutputs:
    match value:
        case {"type": "json_object"}:
            return StructuredOutputs(json_object=True)
        case {"type": "json_schema", **rest}:
            return _from_json_schema(rest.get("json_schema"))
        case {"type": "structural_tag", **rest}:
            return StructuredOutputs(structural_tag=json.dumps(rest))
    kinds = "text, json_object, json_schema or structural_tag"
    raise InvalidRequest(
        f"response_format must be an object whose type is {kinds}, got {shown(value)}",
        param="response_format",
    )


def _from_json_schema(value: object) -> StructuredOutputs:
    where = "response_format.json_schema"
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{where} must be an object, got {shown(value)}", param=where)
    name, schema, strict = value.get("name"), value.get("schema"), value.get("strict")
    if not isinstance(name, str) or not SCHEMA_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{where}.name must be 1 to 64 letters, digits, _ or -, got {shown(name)}",
            param=f"{where}.name",
        )
    if not isinstance(strict, bool | None):
        raise InvalidRequest(
            f"{where}.strict must be a boolean, got {shown(strict)}", param=f"{where}.strict"
        )
    if not isinstance(schema, Mapping | None):
        raise InvalidRequest(
            f"{where}.schema must be an object, got {shown(schema)}", param=f"{where}.schema"
        )
    if schema is None:
        return StructuredOutputs(json_object=True)
    return StructuredOutputs(json=json.dumps(schema))


def _from_object(value: object) -> StructuredOutputs:
    where = "structured_outputs"
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{where} must be an object, got {shown(value)}", param=where)
    fields: dict[str, Any] = {}
    for name, item in value.items():
        if name in IDLE:
            if item not in IDLE[name]:
                raise InvalidRequest(
                    f"{where}.{name} is not supported, got {shown(item)}; leave it out",
                    param=f"{where}.{name}",
                )
        elif name not in (*FORMS, *SWITCHES):
            known = ", ".join((*FORMS, *SWITCHES))
            raise InvalidRequest(
                f"{where} has no field {shown(name)}; it takes {known}", param=where
            )
        elif item is not None:
            fields[name] = _schema_text(f"{where}.{name}", item)
    return StructuredOutputs(**fields)


def _schema_text(where: str, value: Any) -> Any:
    """A schema may come as an object or as text; what else it may be, its own check says."""
    if isinstance(value, Mapping) and not where.endswith(("json", "structural_tag")):
        raise InvalidRequest(f"{where} must be a string or a list, not an object", param=where)
    return value
