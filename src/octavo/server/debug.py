# SPDX-License-Identifier: Apache-2.0
"""GET /debug/...: the books of the running engine, for its operator.

States, counts and block numbers, never prompts or tokens. Still nothing for strangers: who can see
how large others' requests are learns about them. ``build_app`` leaves these routes out unless asked
for. Each answer waits for the step that runs now.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from octavo.server import views
from octavo.server.engine_port import ServingEngine
from octavo.server.errors import ApiError, shown

BLOCKS_MAX = 4096  # in one answer: about a megabyte
FORMATS = ("summary", "full")


def add_routes(app: FastAPI, engine: ServingEngine) -> None:
    @app.get("/debug/requests")
    async def get_requests() -> JSONResponse:
        return JSONResponse({"requests": await engine.ask(views.requests)})

    @app.get("/debug/requests/{name:path}/blocks")
    async def get_request_blocks(request: Request) -> JSONResponse:
        name = request.path_params["name"]
        found = await engine.ask(lambda inner: views.request_blocks(inner, name))
        return _found(found, f"no request {shown(name)} is here (any more)")

    @app.get("/debug/blocks")
    async def get_blocks(request: Request) -> JSONResponse:
        return await _blocks(request, engine)

    @app.get("/debug/blocks/{number}")
    async def get_block(request: Request) -> JSONResponse:
        block_id = _number("block", request.path_params["number"])
        found = await engine.ask(lambda inner: views.block_explained(inner, block_id))
        return _found(found, f"there is no block {block_id}")

    @app.get("/debug/trace")
    async def get_trace() -> JSONResponse:
        return await to_thread.run_sync(lambda: JSONResponse(engine.trace.to_chrome()))


async def _blocks(request: Request, engine: ServingEngine) -> JSONResponse:
    """``format=full`` gives ``limit`` blocks from ``first`` on; ``num_left_out`` follow them."""
    form = request.query_params.get("format", "summary")
    if form not in FORMATS:
        message = f"format must be {' or '.join(FORMATS)}, got {shown(form)}"
        raise ApiError(400, message, param="format")
    if form == "summary":
        return JSONResponse(await engine.ask(views.blocks_summary))
    first = _number("first", request.query_params.get("first", "0"))
    limit = _number("limit", request.query_params.get("limit", str(BLOCKS_MAX)))
    question = partial(views.blocks_full, first=first, limit=min(limit, BLOCKS_MAX))
    return JSONResponse(await engine.ask(question))


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise ApiError(400, f"{name} must be a number, got {shown(text)}", param=name)
    return int(text)


def _found(answer: dict[str, Any] | None, otherwise: str) -> JSONResponse:
    if answer is None:
        raise ApiError(404, otherwise, code="not_found")
    return JSONResponse(answer)
