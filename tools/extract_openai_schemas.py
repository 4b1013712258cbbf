# SPDX-License-Identifier: Apache-2.0
"""Cut OpenAI's description of its API down to the replies that octavo gives.

    python tools/extract_openai_schemas.py openapi.yaml[.gz] > tests/data/server/openai_schemas.json

Needs PyYAML. What is left is as it was published, less prose, and less the members of unions that
stand for what octavo never says (hosted tools, images, audio): see ``KEPT`` and ``DROPPED``.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOTS = (
    "CreateChatCompletionResponse",
    "CreateChatCompletionStreamResponse",
    "CreateCompletionResponse",
    "CreateEmbeddingResponse",
    "ErrorResponse",
    "ListModelsResponse",
    "Model",
    "Response",
    "ResponseStreamEvent",
)

KEPT = {  # of these unions, the members that octavo gives
    "InputItem": ("EasyInputMessage",),
    "OutputItem": ("OutputMessage", "FunctionToolCall", "ReasoningItem"),
    "ResponseStreamEvent": (
        "ResponseCompletedEvent",
        "ResponseContentPartAddedEvent",
        "ResponseContentPartDoneEvent",
        "ResponseCreatedEvent",
        "ResponseErrorEvent",
        "ResponseFailedEvent",
        "ResponseFunctionCallArgumentsDeltaEvent",
        "ResponseFunctionCallArgumentsDoneEvent",
        "ResponseInProgressEvent",
        "ResponseIncompleteEvent",
        "ResponseOutputItemAddedEvent",
        "ResponseOutputItemDoneEvent",
        "ResponseReasoningTextDeltaEvent",
        "ResponseReasoningTextDoneEvent",
        "ResponseTextDeltaEvent",
        "ResponseTextDoneEvent",
    ),
    "Tool": ("FunctionTool",),
    "ToolChoiceParam": ("ToolChoiceOptions", "ToolChoiceAllowed", "ToolChoiceFunction"),
}

DROPPED = {"Annotation", "EasyInputMessage", "Moderation", "ChatCompletionModeration", "Prompt"}

PREFIX = "#/components/schemas/"
PROSE = {"deprecated", "description", "discriminator", "example", "examples", "externalDocs"}


def main() -> None:
    source = Path(sys.argv[1])
    raw = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    schemas = yaml.safe_load(raw)["components"]["schemas"]
    found: dict[str, Any] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = False if name in DROPPED else bare(pruned(name, schemas[name]))
            waiting += refs(found[name])
    json.dump(dict(sorted(found.items())), sys.stdout, indent=1, default=str)
    print()


def pruned(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if name not in KEPT:
        return schema
    union = "oneOf" if "oneOf" in schema else "anyOf"
    wanted = {PREFIX + kept for kept in KEPT[name]}
    return {**schema, union: [item for item in schema[union] if item.get("$ref") in wanted]}


def bare(value: Any, *, is_names: bool = False) -> Any:
    """Without prose; the names of properties are no keywords, whatever they are."""
    if isinstance(value, list):
        return [bare(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: bare(item, is_names=key == "properties" and not is_names)
        for key, item in value.items()
        if is_names or not (key in PROSE or key.startswith("x-") or key == "title")
    }


def refs(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for item in value for name in refs(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"].removeprefix(PREFIX)] if isinstance(value.get("$ref"), str) else []
    return own + [name for item in value.values() for name in refs(item)]


if __name__ == "__main__":
    main()
