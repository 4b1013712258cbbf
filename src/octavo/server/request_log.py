# SPDX-License-Identifier: Apache-2.0
"""One line of log for each request, and the log as text or as JSON.

A line says who asked for how much and how long it took, and nothing of what was asked or answered
unless the operator wants prompts. What a client can choose freely is never in it as it came: paths
are those that were declared, ids and names are of harmless characters, prompts are quoted.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.datastructures import Headers

from octavo.server.api_keys import METRICS, PROBES
from octavo.server.exchange import Exchange
from octavo.types.request import Request

logger = logging.getLogger(__name__)

PROMPT_CHARS_MAX = 10_000  # of each prompt, with log_prompts
TEXT_FORMAT = "%(asctime)s %(levelname)s %(message)s"

# Polled every few seconds: their successes would be most of the log.
QUIET = PROBES | {METRICS, "/load"}


class RequestLog:
    """An observer of exchanges. ``shows_prompts``: the line has the prompts, too."""

    def __init__(self, *, shows_prompts: bool = False) -> None:
        self._shows_prompts = shows_prompts

    def __call__(self, exchange: Exchange, headers: Headers) -> None:
        is_quiet = exchange.route in QUIET and exchange.status < 400
        level = logging.DEBUG if is_quiet else logging.INFO
        if not logger.isEnabledFor(level):
            return
        record = record_of(exchange, duration_s=time.monotonic() - exchange.started_s)
        text = sentence(record)
        if self._shows_prompts and exchange.jobs:
            prompts = [_prompt(request) for job in exchange.jobs for request in job.requests]
            record["prompts"] = prompts
            text += f", prompts {json.dumps(prompts)}"
        logger.log(level, "%s", text, extra={"fields": record})


def record_of(exchange: Exchange, *, duration_s: float) -> dict[str, object]:
    """The line as names and values, times in seconds. Status 0: cut off before an answer."""
    record: dict[str, object] = {
        "request_id": exchange.request_id,
        "method": exchange.method,
        "route": exchange.route or None,
        "status": exchange.status,
        "duration_s": round(duration_s, 6),
    }
    if exchange.user is not None:
        record["user"] = exchange.user
    if exchange.jobs:
        usage = exchange.usage()
        record |= {
            "ended": exchange.finish_reasons() if exchange.is_complete else ["cancelled"],
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        }
        record |= {name: round(seconds, 6) for name, seconds in exchange.times().items()}
    return record


def sentence(record: Mapping[str, object]) -> str:
    """The line for a reader."""
    who = f" by {record['user']}" if "user" in record else ""
    route = record["route"] or "(no route)"
    text = f"{record['request_id']}: {record['method']} {route}{who}, status {record['status']}"
    ended = record.get("ended")
    if isinstance(ended, list):
        text += f", {', '.join(ended)}, {record['prompt_tokens']} prompt"
        text += f" + {record['completion_tokens']} new tokens"
    return f"{text} in {record['duration_s']:.3f} s"


def _prompt(request: Request) -> str:
    """Text where there is some; it may be long, and a log need not be."""
    text = request.prompt or " ".join(map(str, request.prompt_token_ids))
    return text[:PROMPT_CHARS_MAX]


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, message, the fields of the record, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(log_format: str) -> None:
    """Log on standard error, all of this process alike. For a program, never for a library.

    uvicorn's own messages repeat what the server says in better words.
    """
    handler = logging.StreamHandler()
    is_json = log_format == "json"
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter(TEXT_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
