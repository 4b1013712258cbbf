# SPDX-License-Identifier: Apache-2.0
"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from octavo.server import reply, turn
from octavo.server.anthropic.schemas import CountRequest, MessagesRequest
from octavo.server.anthropic.wish import wish_of
from octavo.server.anthropic.writer import MessageWriter
from octavo.server.openai import answer
from octavo.server.openai.answer import Service
from octavo.server.reply import Reply


async def create(request: Request, service: Service) -> Response:
    return await reply.create(request, service, parse)


def parse(body: bytes, service: Service, request_id: str) -> Reply:
    """Validate, render, tokenise: all the work that is too long for the event loop."""
    asked = MessagesRequest.model_validate_json(body)
    id_ = f"msg_{request_id}"
    prepared = turn.prepare(wish_of(asked), service, id_)
    writer = MessageWriter(id_, service.model_names[0])
    return Reply(prepared, writer, is_stream=bool(asked.stream))


async def count_tokens(request: Request, service: Service) -> Response:
    """How long the prompt of such a message would be."""
    body = await answer.receive(request, service)
    num_tokens = await to_thread.run_sync(_count, body, service)
    return JSONResponse({"input_tokens": num_tokens})


def _count(body: bytes, service: Service) -> int:
    asked = CountRequest.model_validate_json(body)
    return len(turn.prompt_of(wish_of(asked), service)["prompt_token_ids"])
