# SPDX-License-Identifier: Apache-2.0
"""One shape for everything that can go wrong: ``{"error": {message, type, param, code}}``.

(``shapes.py`` has the exception: Anthropic's paths are refused in Anthropic's words.)

OctavoError / pydantic / HTTP    status  type                    code
InvalidRequest                   400     invalid_request_error   None
PromptTooLong                    400     invalid_request_error   context_length_exceeded
ValidationError                  400     invalid_request_error   None
unknown model                    404     invalid_request_error   model_not_found
unknown route, wrong method      404/405 invalid_request_error   None
body too large                   413     invalid_request_error   body_too_large
headers too large                431     invalid_request_error   headers_too_large
no API key, or a wrong one       401     invalid_request_error   invalid_api_key
limits of the API key used up    429     rate_limit_error        rate_limit_exceeded
EngineStopped, shutting down     503     server_error            engine_unavailable
EngineOverloaded                 429     rate_limit_error        engine_overloaded
nobody took the answer           408     invalid_request_error   lease_expired
timeout_s and its like ran out   504     server_error            timeout
anything else                    500     server_error            None (details: the log only)
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

from octavo.server.sse import ClientGone
from octavo.types.errors import (
    EngineOverloaded,
    EngineStopped,
    InvalidRequest,
    OctavoError,
    PromptTooLong,
)

logger = logging.getLogger(__name__)

CLIENT_CLOSED = 499  # nginx's number for a client that did not wait
SHOWN_INPUT_MAX = 60  # characters of a refused value that a message repeats
SHOWN_ERRORS_MAX = 3  # further mistakes in the same body are only counted


class ApiError(Exception):
    """An answer that is no success. Raised anywhere in a handler, rendered in one place."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, object]:
        """The JSON object of the answer; a stream sends the same as an event."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        if self.status == HTTPStatus.TOO_MANY_REQUESTS:
            kind = "rate_limit_error"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        return JSONResponse(self.body(), status_code=self.status, headers=self.headers)


def internal_error() -> ApiError:
    """What a client may know about our own mistakes: nothing but that it was ours."""
    return ApiError(500, "the server failed to answer this request; its log has the details")


def engine_unavailable(message: str) -> ApiError:
    return ApiError(503, message, code="engine_unavailable", headers={"retry-after": "5"})


def timed_out() -> ApiError:
    return ApiError(504, "the request ran out of the time that it was given", code="timeout")


def lease_expired(reason: str) -> ApiError:
    return ApiError(408, f"the server gave the request up: {reason}", code="lease_expired")


def model_not_found(name: str) -> ApiError:
    message = f"The model `{shown(name)}` does not exist here; GET /v1/models lists what does."
    return ApiError(404, message, param="model", code="model_not_found")


def to_api_error(error: Exception) -> ApiError:
    """Map any exception. What nobody raised on purpose is logged with its traceback."""
    match error:
        case ApiError():
            return error
        case PromptTooLong():
            return ApiError(400, str(error), param=error.param, code="context_length_exceeded")
        case InvalidRequest():
            return ApiError(400, str(error), param=error.param)
        case ValidationError():
            return _from_validation(error)
        case EngineStopped():
            logger.error("request refused: %s", error)
            return engine_unavailable("the engine has stopped")
        case EngineOverloaded():
            headers = {"retry-after": str(error.retry_after_s)}
            return ApiError(429, str(error), code="engine_overloaded", headers=headers)
        case HTTPException():
            return ApiError(error.status_code, str(error.detail), headers=_headers(error))
        case _:
            logger.error("request failed", exc_info=error)
            return internal_error()


def install(app: FastAPI, refusal: Callable[[ApiError, str], JSONResponse]) -> None:
    """Render every exception that reaches the router by ``refusal``, which is told the path."""

    async def render(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, HTTPException):
            error = _route_error(request, error)
        return refusal(to_api_error(error), request.url.path)

    async def hang_up(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED)  # for the log: nobody reads it

    for kind in (ApiError, OctavoError, ValidationError, HTTPException):
        app.add_exception_handler(kind, render)
    app.add_exception_handler(ClientGone, hang_up)


def _route_error(request: Request, error: HTTPException) -> ApiError:
    route = f"{request.method} {shown(request.url.path)}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        return ApiError(404, f"there is no route {route}; GET /docs lists the routes")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{route} is not allowed; this path takes {allowed or 'another method'}"
        return ApiError(405, message, headers=_headers(error))
    return to_api_error(error)


def _headers(error: HTTPException) -> dict[str, str] | None:
    return dict(error.headers) if error.headers else None


def _from_validation(error: ValidationError) -> ApiError:
    details = error.errors(include_url=False, include_context=False)
    lines = [_explain(detail) for detail in details[:SHOWN_ERRORS_MAX]]
    if len(details) > SHOWN_ERRORS_MAX:
        lines.append(f"and {len(details) - SHOWN_ERRORS_MAX} more")
    return ApiError(400, "; ".join(lines), param=field_path(details[0]["loc"]))


def _explain(detail: ErrorDetails) -> str:
    path = field_path(detail["loc"])
    if detail["type"] == "json_invalid":
        return f"the body is not valid JSON: {detail['msg'].removeprefix('Invalid JSON: ')}"
    if detail["type"] == "missing":
        return f"{path} is required"
    what = detail["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"{path or 'the body'} {what}, got {shown(detail['input'])}"


def field_path(loc: tuple[int | str, ...]) -> str | None:
    """``("messages", 0, "role")`` as a caller would write it: ``messages[0].role``."""
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or None


def shown(value: object) -> str:
    """A caller's value, short enough to repeat in a message or a log line."""
    if isinstance(value, str):
        text = value[: SHOWN_INPUT_MAX + 1]
    elif isinstance(value, list | dict):
        return f"{'an array' if isinstance(value, list) else 'an object'} of {len(value)}"
    elif value is None or isinstance(value, bool):
        text = json.dumps(value)
    elif isinstance(value, int) and abs(value) > 10**SHOWN_INPUT_MAX:
        return "a huge integer"  # int -> str is quadratic, and refused above 4300 digits
    else:
        text = repr(value)
    if len(text) > SHOWN_INPUT_MAX:
        text = text[:SHOWN_INPUT_MAX] + "..."
    return text if not isinstance(value, str) else text.encode("unicode_escape").decode("ascii")
