# SPDX-License-Identifier: Apache-2.0
"""POST /v1/kv/pin, /v1/kv/unpin, /reset_prefix_cache and GET /v1/kv/pins: the operator's hand on
the prefix cache.

A pin takes memory from everybody, and a reset everybody's cached prompts, so strangers get neither:
``build_app`` leaves these routes out where it leaves out /debug.
"""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from octavo.engine.pin_board import Pin, PinBoard
from octavo.server import turn
from octavo.server.body import read_json_body
from octavo.server.errors import ApiError, shown
from octavo.server.openai import generation
from octavo.server.openai.answer import Service
from octavo.server.openai.generation import Job
from octavo.server.turn import Wish
from octavo.types.errors import InvalidRequest
from octavo.types.request import Standing
from octavo.types.sampling_params import OutputKind, SamplingParams

# The prompt is computed for its blocks; the one token that the engine must sample is not looked at.
_PREFILL = SamplingParams(max_tokens=1, temperature=0, output_kind=OutputKind.FINAL_ONLY)


class PinRequest(BaseModel):
    """``prompt`` is text or token ids; ``messages`` stand for every chat that begins with them."""

    model_config = ConfigDict(strict=True, extra="forbid")

    prompt: Annotated[Any, Field(description="text, or token ids")] = None
    messages: Annotated[list[dict[str, Any]] | None, Field(min_length=1)] = None
    cache_salt: str | None = None
    add_special_tokens: bool | None = None


class UnpinRequest(BaseModel):
    """``id`` as the pin's answer gave it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    id: str


class ResetRequest(BaseModel):
    """``preempt_running``: requests inside give up their blocks too, and compute them anew."""

    model_config = ConfigDict(strict=True, extra="forbid")

    preempt_running: bool = False


def add_routes(app: FastAPI, service: Service) -> None:
    board = PinBoard()

    @app.post("/v1/kv/pin")
    async def pin(request: Request) -> JSONResponse:
        body = await read_json_body(request, service.max_body_bytes)
        return JSONResponse(await _pin(body, service, board, request.state.request_id))

    @app.post("/v1/kv/unpin")
    async def unpin(request: Request) -> JSONResponse:
        asked = UnpinRequest.model_validate_json(
            await read_json_body(request, service.max_body_bytes)
        )
        if not await service.engine.ask(lambda engine: board.unpin(engine, asked.id)):
            message = f"there is no pin {shown(asked.id)}; GET /v1/kv/pins lists them"
            raise ApiError(404, message, param="id", code="not_found")
        return JSONResponse({"id": asked.id, "object": "kv.pin", "deleted": True})

    @app.get("/v1/kv/pins")
    async def list_pins() -> JSONResponse:
        pins = await service.engine.ask(lambda engine: board.pins())
        return JSONResponse({"object": "list", "data": [_shown(one) for one in pins]})

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache(request: Request) -> JSONResponse:
        asked = ResetRequest()
        headers = request.headers
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            body = await read_json_body(request, service.max_body_bytes)
            asked = ResetRequest.model_validate_json(body)
        question = partial(board.reset_prefix_cache, preempt_running=asked.preempt_running)
        is_all_free = await service.engine.ask(question)
        return JSONResponse({"success": True, "all_free": is_all_free})


async def _pin(body: bytes, service: Service, board: PinBoard, name: str) -> dict[str, object]:
    """Compute what is not cached yet, then hold it."""
    service.lifecycle.check_open()
    if not await service.engine.ask(lambda engine: engine.blocks.prefix_caching):
        raise ApiError(400, "the prefix cache is off (enable_prefix_caching)")
    job = await to_thread.run_sync(_admitted, body, service, name)
    (request,) = job.requests
    block_size = service.engine.admission.limits.block_size
    if len(request.prompt_token_ids) < block_size:
        num_tokens = len(request.prompt_token_ids)
        message = f"the prompt has {num_tokens} tokens; only full blocks of {block_size} are cached"
        raise InvalidRequest(message, param="prompt")
    async with aclosing(generation.run(service.engine, service.lifecycle, job)) as outputs:
        async for _ in outputs:
            pass
    question = partial(board.pin, token_ids=request.prompt_token_ids, cache_salt=request.cache_salt)
    return _shown(await service.engine.ask(question))


def _admitted(body: bytes, service: Service, name: str) -> Job:
    asked = PinRequest.model_validate_json(body)
    if (asked.prompt is None) == (asked.messages is None):
        raise InvalidRequest("give prompt or messages, and not both", param="prompt")
    if asked.messages is not None:
        fields = {"messages": asked.messages, "add_special_tokens": asked.add_special_tokens}
        wish = Wish({**fields, "add_generation_prompt": False}, {})
        prompt = turn.prompt_of(wish, service)["prompt_token_ids"]
    elif isinstance(asked.prompt, str):
        adds_special = asked.add_special_tokens is not False
        prompt = service.encode(asked.prompt, add_special_tokens=adds_special)
    else:
        prompt = asked.prompt
    salt = Standing(cache_salt=asked.cache_salt or "")
    return Job.admit(
        f"pin-{name}",
        [{"prompt_token_ids": prompt}],
        _PREFILL,
        service.engine.admission,
        standing=salt,
    )


def _shown(pin: Pin) -> dict[str, object]:
    """Counts, and never the prompt."""
    return {
        "id": pin.pin_id,
        "object": "kv.pin",
        "num_tokens": pin.num_tokens,
        "num_pinned_tokens": pin.num_pinned_tokens,
    }
