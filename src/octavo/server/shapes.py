# SPDX-License-Identifier: Apache-2.0
"""Which shape a refusal has: that of the API whose path was asked."""

from __future__ import annotations

from fastapi.responses import JSONResponse

from octavo.server.anthropic import errors as anthropic_errors
from octavo.server.errors import ApiError

ANTHROPIC_PATHS = ("/v1/messages", "/v1/messages/")


def refusal(error: ApiError, path: str) -> JSONResponse:
    """``error`` as the answer to a request for ``path``."""
    if path == ANTHROPIC_PATHS[0] or path.startswith(ANTHROPIC_PATHS[1]):
        document = anthropic_errors.document(error)
        return JSONResponse(document, status_code=error.status, headers=error.headers)
    return error.response()
