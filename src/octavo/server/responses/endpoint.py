# SPDX-License-Identifier: Apache-2.0
"""POST /v1/responses: OpenAI's newer way to ask, without its memory of earlier answers."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response

from octavo.server import reply, turn
from octavo.server.errors import ApiError, shown
from octavo.server.openai.answer import Service
from octavo.server.reply import Reply
from octavo.server.responses.output import JsonDict
from octavo.server.responses.schemas import ResponsesRequest
from octavo.server.responses.wish import wish_of
from octavo.server.responses.writer import ResponseWriter
from octavo.types.sampling_params import SamplingParams


async def create(request: Request, service: Service) -> Response:
    return await reply.create(request, service, parse)


def parse(body: bytes, service: Service, request_id: str) -> Reply:
    """Validate, render, tokenise: all the work that is too long for the event loop."""
    asked = ResponsesRequest.model_validate_json(body)
    id_ = f"resp_{request_id}"
    prepared = turn.prepare(wish_of(asked), service, id_)
    head = _head(asked, prepared.job.requests[0].params, id_, service.model_names[0])
    num_top = (asked.top_logprobs or 0) if asked.wants_logprobs else None
    writer = ResponseWriter(head, service.tokenizer, num_top=num_top)
    return Reply(prepared, writer, is_stream=bool(asked.stream))


def not_stored(name: str) -> ApiError:
    """The answer to whoever asks for an earlier response."""
    return ApiError(404, f"no response {shown(name)} is here: responses are not stored")


def _head(asked: ResponsesRequest, params: SamplingParams, id_: str, model: str) -> JsonDict:
    """What a response repeats of its request, with what was chosen where nothing was asked."""
    text, reasoning = asked.text, asked.reasoning
    return {
        "id": id_,
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "background": False,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "temperature": params.temperature,
        "text": {"format": (text and text.format) or {"type": "text"}},
        "tool_choice": "auto" if asked.tool_choice is None else asked.tool_choice,
        "tools": [_tool(tool) for tool in asked.tools or ()],
        "top_logprobs": asked.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": asked.truncation or "disabled",
    }


def _tool(tool: JsonDict) -> JsonDict:
    return {"strict": None, "parameters": None, **tool}
