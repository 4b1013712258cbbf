# SPDX-License-Identifier: Apache-2.0
"""A time limit that comes as a header, so that a proxy can set it without reading the body."""

from __future__ import annotations

import re

from starlette.datastructures import Headers

from octavo.server.errors import ApiError, shown
from octavo.types.sampling_params import TIMEOUT_MAX_S

TIMEOUT_HEADER = "x-request-timeout-ms"


def timeout_s(headers: Headers) -> float | None:
    """Seconds from the arrival of the request to its last token; None when no limit was sent.

    The shorter of it and of the body's ``timeout_s`` holds. Raises ``ApiError`` 400.
    """
    text = headers.get(TIMEOUT_HEADER)
    if text is None:
        return None
    most = int(1e3 * TIMEOUT_MAX_S)
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= most:
        message = f"{TIMEOUT_HEADER} must be milliseconds in [1, {most}], got {shown(text)}"
        raise ApiError(400, message, param=TIMEOUT_HEADER)
    return int(text) / 1e3
