# SPDX-License-Identifier: Apache-2.0
"""POST /tokenize, /detokenize and /apply-template: what a prompt is before the model sees it.

The shapes are vLLM's; a body with ``content`` is llama.cpp's and is answered in kind. All of it
runs in worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from octavo.server import sse, turn
from octavo.server.openai import answer
from octavo.server.openai.answer import Service
from octavo.server.openai.logprobs import token_text
from octavo.server.openai.schemas import Int64
from octavo.server.turn import Wish
from octavo.types.errors import InvalidRequest

JsonDict = dict[str, Any]


class TokenizeRequest(BaseModel):
    """One of ``prompt``, ``messages`` (with chat's further fields) and ``content``."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[JsonDict] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    tokens: Annotated[list[Int64], Field(description="token ids")]


class TemplateRequest(BaseModel):
    """``messages``, and chat's further fields."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    messages: Annotated[list[JsonDict], Field(min_length=1)]


async def respond(
    request: Request, service: Service, work: Callable[[bytes, Service], JsonDict]
) -> Response:
    """The answer of one of the functions below, which run in a worker thread."""
    body = await answer.receive(request, service)
    document = await to_thread.run_sync(work, body, service)
    return Response(sse.to_json(document), media_type="application/json")


def tokenize(body: bytes, service: Service) -> JsonDict:
    """Raises ``InvalidRequest``."""
    asked = TokenizeRequest.model_validate_json(body)
    answer.check_model(asked.model, service)
    given = [name for name in ("prompt", "content", "messages") if getattr(asked, name) is not None]
    if len(given) != 1:
        message = f"give one of prompt, messages and content; got {' and '.join(given) or 'none'}"
        raise InvalidRequest(message, param=given[-1] if given else "prompt")
    if asked.content is not None:
        return _tokenize_content(asked, asked.content, service)
    if asked.prompt is not None:
        adds_special = asked.add_special_tokens is not False
        ids = service.encode(asked.prompt, add_special_tokens=adds_special)
    else:
        ids = turn.prompt_of(_wish(asked), service)["prompt_token_ids"]
    texts = [_text(i, service) for i in ids] if asked.return_token_strs else None
    return {
        "count": len(ids),
        "max_model_len": service.engine.admission.limits.max_model_len,
        "tokens": ids,
        "token_strs": texts,
    }


def detokenize(body: bytes, service: Service) -> JsonDict:
    """All that the tokens spell, control tokens included. Raises ``InvalidRequest``."""
    asked = DetokenizeRequest.model_validate_json(body)
    answer.check_model(asked.model, service)
    _check_ids(asked.tokens, service)
    text = service.tokenizer.decode(asked.tokens, skip_special_tokens=False)
    return {"prompt": text, "content": text}


def apply_template(body: bytes, service: Service) -> JsonDict:
    """Raises ``InvalidRequest``."""
    asked = TemplateRequest.model_validate_json(body)
    return {"prompt": turn.prompt_of(_wish(asked), service)["prompt"]}


def _tokenize_content(asked: TokenizeRequest, content: str, service: Service) -> JsonDict:
    if asked.parse_special is False:
        message = "parse_special must be true: control tokens spelt out are always read"
        raise InvalidRequest(message, param="parse_special")
    ids = service.encode(content, add_special_tokens=bool(asked.add_special))
    if not asked.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": i, "piece": _piece(i, service)} for i in ids]}


def _wish(asked: TokenizeRequest | TemplateRequest) -> Wish:
    own = {"prompt", "content", "return_token_strs", "add_special", "parse_special", "with_pieces"}
    fields = asked.model_dump(exclude=own, exclude_none=True)
    return Wish({**fields, **(asked.model_extra or {})}, {})


def _check_ids(ids: Sequence[int], service: Service) -> None:
    vocab_size = service.tokenizer.vocab_size
    for index, token_id in enumerate(ids):
        if not 0 <= token_id < vocab_size:
            where = f"tokens[{index}]"
            message = f"{where} ({token_id}) is outside the vocabulary of {vocab_size}"
            raise InvalidRequest(message, param=where)


def _text(token_id: int, service: Service) -> str:
    return token_text(service.tokenizer.token_bytes(token_id))


def _piece(token_id: int, service: Service) -> str | list[int]:
    """Text; the bytes of a token that is only part of a character."""
    raw = service.tokenizer.token_bytes(token_id)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return list(raw)
