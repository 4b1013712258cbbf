# SPDX-License-Identifier: Apache-2.0
"""Reading a request's body: a bounded number of bytes, declared to be JSON."""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request

from octavo.server.errors import ApiError
from octavo.server.sse import ClientGone

# A refusal is lost when the socket closes on a client that is still sending, so we hear it out,
# up to this many times the limit.
DISCARD_FACTOR = 8


async def read_json_body(request: Request, max_bytes: int) -> bytes:
    """The raw body. Raises ``ApiError`` 415 or 413, and ``ClientGone`` if the client left midway.

    Insisting on the content type also keeps web pages out: a browser lets any page post text/plain
    to localhost, but asks the server first before it posts JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        message = f"content-type must be application/json, got {kind or 'none'}"
        raise ApiError(415, message, code="unsupported_media_type")
    chunks: list[bytes] = []
    num_bytes = 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes <= max_bytes:
                chunks.append(chunk)
            elif num_bytes > max_bytes * DISCARD_FACTOR:
                break
    except ClientDisconnect as error:
        raise ClientGone from error
    if num_bytes > max_bytes:
        message = f"the body is larger than {max_bytes} bytes, the limit of this server"
        raise ApiError(413, message, code="body_too_large")
    return b"".join(chunks)
