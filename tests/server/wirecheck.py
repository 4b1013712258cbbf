# SPDX-License-Identifier: Apache-2.0
"""Every answer that a test gets is compared with OpenAI's published description of its API.

``Checked`` stands around an application and reads what it answers. A field that is missing, has the
wrong type or is not known at all is a failure; what octavo adds on purpose is in ``EXTENSIONS``.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[1] / "data" / "server" / "openai_schemas.json"

# Fields that OpenAI's API does not have: vLLM's, and what only octavo can tell.
EXTENSIONS = frozenset(
    "max_model_len parent prompt_logprobs reasoning reasoning_content root service_tier "
    "stop_reason timelines truncated_tokens".split()
)

# (method, path): the schema of a whole answer and that of an event.
REPLIES = {
    ("POST", "/v1/completions"): ("CreateCompletionResponse", "CompletionChunk"),
    ("POST", "/v1/chat/completions"): (
        "CreateChatCompletionResponse",
        "CreateChatCompletionStreamResponse",
    ),
    ("POST", "/v1/responses"): ("Response", "ResponseStreamEvent"),
    ("POST", "/v1/embeddings"): ("CreateEmbeddingResponse", ""),
    ("GET", "/v1/models"): ("ListModelsResponse", ""),
}


def check(schema: str, value: object) -> list[str]:
    """What is wrong with ``value``, the innermost reason for each."""
    found = validator(schema).iter_errors(value)
    return [f"{schema}{error.json_path[1:]}: {_reason(error)}" for error in found]


def _reason(error: Any) -> str:
    """Of a union, the complaints of the member whose ``type`` it is, or that comes closest."""
    while error.context:
        others = {c.schema_path[0] for c in error.context if c.path and c.path[-1] == "type"}
        mine = [c for c in error.context if c.schema_path[0] not in others] or error.context
        error = max(mine, key=lambda inner: len(inner.absolute_path))
    return f"{error.json_path}: {error.message[:300]}"


@functools.cache
def validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{schema}", "$defs": definitions()})


@functools.cache
def definitions() -> dict[str, Any]:
    text = SCHEMAS.read_text().replace("#/components/schemas/", "#/$defs/")
    schemas = json.loads(text)
    shared = set(re.findall(r"(\w+)", " ".join(_all_of_refs(schemas))))
    schemas |= amended(schemas)
    return {name: closed(schema, name not in shared) for name, schema in schemas.items()}


def amended(schemas: dict[str, Any]) -> dict[str, Any]:
    """Where the description says less than the API does.

    A chunk of a completion has no ``finish_reason`` yet, and no ``usage`` until the last one; the
    first token of a prompt has no log-probability.
    """
    whole = json.loads(json.dumps(schemas["CreateCompletionResponse"]))
    logprobs = whole["properties"]["choices"]["items"]["properties"]["logprobs"]["anyOf"][0]
    for name in ("token_logprobs", "top_logprobs"):
        logprobs["properties"][name]["items"]["nullable"] = True
    chunk = json.loads(json.dumps(whole))
    chunk["properties"]["choices"]["items"]["properties"]["finish_reason"]["nullable"] = True
    chunk["properties"]["usage"]["nullable"] = True
    return {"CreateCompletionResponse": whole, "CompletionChunk": chunk}


def closed(value: Any, closes: bool = True) -> Any:
    """A schema that knows all its fields, and says null where OpenAPI 3.0 said nullable."""
    if isinstance(value, list):
        return [closed(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: closed(item) for key, item in value.items() if key not in ("allOf", "nullable")}
    if "allOf" in value:
        result["allOf"] = [closed(item, closes=False) for item in value["allOf"]]
    is_object = "properties" in value or "allOf" in value
    if closes and is_object and "additionalProperties" not in value:
        result.setdefault("properties", {})
        result["properties"] |= dict.fromkeys(EXTENSIONS, True)
        result["unevaluatedProperties"] = False
    return {"anyOf": [result, {"type": "null"}]} if value.get("nullable") is True else result


def _all_of_refs(value: Any) -> list[str]:
    if isinstance(value, list):
        return [ref for item in value for ref in _all_of_refs(item)]
    if not isinstance(value, dict):
        return []
    own = [str(item["$ref"]).split("/")[-1] for item in value.get("allOf", ()) if "$ref" in item]
    return own + [ref for item in value.values() for ref in _all_of_refs(item)]


class Checked:
    """An ASGI application whose good answers are checked as they leave; see ``failures``."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.state = app.state
        self.failures: list[str] = []
        self.num_checked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        schemas = REPLIES.get((scope.get("method", ""), scope.get("path", "")))
        if schemas is None:
            await self._app(scope, receive, send)
            return
        status, body = 0, bytearray()

        async def watch(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            self._check(schemas, status, bytes(body))

    def _check(self, schemas: tuple[str, str], status: int, body: bytes) -> None:
        if status >= 400:
            self._add("ErrorResponse", json.loads(body))
        elif status == 200 and not body.startswith((b"data:", b"event:")):
            if body:  # nothing, if the client left
                self._add(schemas[0], json.loads(body))
        elif status == 200:
            for event in events(body):
                self._add("ErrorResponse" if "error" in event else schemas[1], event)

    def _add(self, schema: str, value: dict[str, Any]) -> None:
        self.num_checked += 1
        self.failures += check(schema, value)

    def assert_clean(self) -> None:
        assert not self.failures, "\n".join(self.failures[:5])


def events(body: bytes) -> list[dict[str, Any]]:
    """The documents of a stream, as far as it came."""
    whole = body[: body.rfind(b"\n\n") + 2].decode()
    lines = [line for line in whole.split("\n") if line.startswith("data: ")]
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]
