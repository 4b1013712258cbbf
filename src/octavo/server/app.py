# SPDX-License-Identifier: Apache-2.0
"""The ASGI application. It holds no state of its own beyond what ``build_app`` is given."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from anyio import to_thread
from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from octavo.chat.interpreter import Interpreter
from octavo.server import (
    debug,
    errors,
    health,
    kv,
    load,
    metrics_text,
    operations,
    shapes,
    tokens,
)
from octavo.server.anthropic import endpoint as messages
from octavo.server.anthropic.schemas import CountRequest, MessagesRequest
from octavo.server.engine_port import ServingEngine
from octavo.server.lifecycle import Lifecycle
from octavo.server.openai import chat, completions, models
from octavo.server.openai.answer import Service
from octavo.server.openai.schemas import ChatRequest, CompletionRequest
from octavo.server.operations import Operations
from octavo.server.responses import endpoint as responses
from octavo.server.responses.schemas import ResponsesRequest
from octavo.server.server_metrics import ServerMetrics
from octavo.server.tokens import DetokenizeRequest, TemplateRequest, TokenizeRequest
from octavo.types.config import ChatConfig
from octavo.types.ports import Tokenizer

REF_TEMPLATE = "#/components/schemas/{model}"
BODIES: tuple[type[BaseModel], ...] = (
    ChatRequest,
    CompletionRequest,
    CountRequest,
    DetokenizeRequest,
    MessagesRequest,
    ResponsesRequest,
    TemplateRequest,
    TokenizeRequest,
)


def build_app(
    engine: ServingEngine,
    tokenizer: Tokenizer,
    *,
    model_name: str,
    aliases: Sequence[str] = (),
    version: str = "unknown",
    debug_routes: bool = False,
    chat: ChatConfig = ChatConfig(),  # noqa: B008 (frozen)
    around: Operations = Operations(),  # noqa: B008 (frozen)
) -> FastAPI:
    """An application that serves one engine under ``model_name`` and ``aliases``.

    ``debug_routes`` adds /debug/..., which shows everybody's requests to whoever can connect, and
    the routes that pin and reset the prefix cache. ``around``: keys, limits, log, and their like.
    The engine belongs to the caller, who starts it before and closes it afterwards.
    ``app.state.lifecycle`` is the handle for draining.
    """
    service = Service(
        engine=engine,
        tokenizer=tokenizer,
        interpreter=Interpreter.configured(
            tokenizer, chat, new_token=lambda: secrets.token_hex(12)
        ),
        lifecycle=Lifecycle(engine.abort),
        model_names=(model_name, *aliases),
        max_body_bytes=around.config.max_body_bytes,
    )
    metrics = ServerMetrics()
    app = FastAPI(title="octavo", version=version)
    app.openapi = partial(_describe, app)  # type: ignore[method-assign]
    app.state.lifecycle = service.lifecycle
    _add_openai_routes(app, service)
    _add_response_routes(app, service)
    _add_anthropic_routes(app, service)
    _add_token_routes(app, service)
    _add_operator_routes(app, service, metrics, version)
    if debug_routes:
        debug.add_routes(app, engine)
        kv.add_routes(app, service)
    errors.install(app, shapes.refusal)
    operations.install(app, around, metrics, model_name=model_name)
    return app


def _add_openai_routes(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models")
    async def list_models() -> JSONResponse:
        return JSONResponse(models.list_models(service))

    @app.get("/v1/models/{name:path}")
    async def get_model(request: Request) -> JSONResponse:
        return JSONResponse(models.get_model(request.path_params["name"], service))

    @app.post("/v1/completions", openapi_extra=_body(CompletionRequest))
    async def create_completion(request: Request) -> Response:
        return await completions.create(request, service)

    @app.post("/v1/chat/completions", openapi_extra=_body(ChatRequest))
    async def create_chat_completion(request: Request) -> Response:
        return await chat.create(request, service)


def _add_response_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/responses", openapi_extra=_body(ResponsesRequest))
    async def create_response(request: Request) -> Response:
        return await responses.create(request, service)

    @app.get("/v1/responses/{name}")
    async def get_response(request: Request) -> Response:
        raise responses.not_stored(request.path_params["name"])


def _add_anthropic_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/messages", openapi_extra=_body(MessagesRequest))
    async def create_message(request: Request) -> Response:
        return await messages.create(request, service)

    @app.post("/v1/messages/count_tokens", openapi_extra=_body(CountRequest))
    async def count_message_tokens(request: Request) -> Response:
        return await messages.count_tokens(request, service)


def _add_token_routes(app: FastAPI, service: Service) -> None:
    @app.post("/tokenize", openapi_extra=_body(TokenizeRequest))
    async def tokenize(request: Request) -> Response:
        return await tokens.respond(request, service, tokens.tokenize)

    @app.post("/detokenize", openapi_extra=_body(DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        return await tokens.respond(request, service, tokens.detokenize)

    @app.post("/apply-template", openapi_extra=_body(TemplateRequest))
    async def apply_template(request: Request) -> Response:
        return await tokens.respond(request, service, tokens.apply_template)


def _add_operator_routes(
    app: FastAPI, service: Service, metrics: ServerMetrics, version: str
) -> None:
    @app.get("/health")
    async def get_health() -> Response:
        return health.report(service.engine, service.lifecycle)

    @app.get("/health/live")
    async def get_health_live() -> Response:
        return health.live(service.engine)

    @app.get("/health/ready")
    async def get_health_ready() -> Response:
        return health.ready(service.engine, service.lifecycle)

    @app.get("/metrics")
    async def get_metrics(request: Request) -> Response:
        stats, accept = service.engine.stats(), request.headers.get("accept", "")
        name = service.model_names[0]
        # Milliseconds of text: not on the event loop, whose delay it tells.
        return await to_thread.run_sync(metrics_text.response, stats, name, accept, metrics)

    @app.get("/load")
    async def get_load() -> JSONResponse:
        return await load.report(service.engine)

    @app.get("/version")
    async def get_version() -> JSONResponse:
        return JSONResponse({"version": version})


def _body(model: type[BaseModel]) -> dict[str, object]:
    """The request body for /docs; the handlers read and check it themselves."""
    schema = {"$ref": REF_TEMPLATE.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas that ``_body`` refers to."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    models: list[tuple[type[BaseModel], Literal["validation"]]] = [
        (model, "validation") for model in BODIES
    ]
    _, schemas = models_json_schema(models, ref_template=REF_TEMPLATE)
    document["components"] = {"schemas": schemas["$defs"]}
    return document
