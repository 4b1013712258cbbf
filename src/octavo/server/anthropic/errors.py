# SPDX-License-Identifier: Apache-2.0
"""Refusals as clients of Anthropic's API know them."""

from __future__ import annotations

from octavo.server.errors import ApiError

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def document(error: ApiError) -> dict[str, object]:
    """The JSON object of the answer; a stream sends the same as an event."""
    otherwise = "invalid_request_error" if error.status < 500 else "api_error"
    kind = KINDS.get(error.status, otherwise)
    return {"type": "error", "error": {"type": kind, "message": error.message}}
