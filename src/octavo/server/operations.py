# SPDX-License-Identifier: Apache-2.0
"""Everything around the endpoints, made from a ``ServerConfig``."""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass, field
from functools import partial

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from octavo.server import tracing
from octavo.server.api_keys import ApiKeys
from octavo.server.config import ServerConfig
from octavo.server.keys import Keyring
from octavo.server.rate_limits import Limits, RateLimits
from octavo.server.request_context import Observer, RequestContext
from octavo.server.request_log import RequestLog
from octavo.server.server_metrics import ServerMetrics
from octavo.server.tracing import Tracing
from octavo.types.errors import InvalidConfig
from octavo.types.ports import Clock

SHOWN_TO_PAGES = (
    "retry-after",
    "x-request-id",
    *(
        f"x-ratelimit-{what}-{unit}"
        for what in ("limit", "remaining", "reset")
        for unit in ("requests", "tokens")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """``tracing`` belongs to whoever made it, and is closed by them."""

    config: ServerConfig = field(default_factory=ServerConfig)
    keyring: Keyring = field(default_factory=Keyring)
    tracing: Tracing | None = None
    clock: Clock = time.monotonic

    @classmethod
    def prepare(cls, config: ServerConfig, environment_key: str | None = None) -> Operations:
        """Read the files that ``config`` names. Raises ``InvalidConfig`` for all that can be wrong
        with it, so it comes before a model is loaded.
        """
        keyring = _read_keyring(config, environment_key)
        _check_certificate(config)
        url = config.otlp_traces_endpoint
        return cls(config=config, keyring=keyring, tracing=tracing.connect(url) if url else None)

    def close(self) -> None:
        if self.tracing is not None:
            self.tracing.close()


def _read_keyring(config: ServerConfig, environment_key: str | None) -> Keyring:
    """The keys of all sources. Raises ``InvalidConfig``, also for limits that nobody has."""
    limits = Limits(config.requests_per_minute, config.tokens_per_minute, config.tokens_per_day)
    keyring = Keyring.collect(
        config.api_key,
        file=config.api_key_file,
        environment=environment_key,
        limits=limits,
    )
    if limits != Limits() and not len(keyring):
        raise InvalidConfig("limits are those of API keys: give some with api_key_file or api_key")
    return keyring


def _check_certificate(config: ServerConfig) -> None:
    """Raise ``InvalidConfig`` unless the files are there and belong together."""
    if config.ssl_certfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # An encrypted key would otherwise be asked about on the terminal.
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password=lambda: "")
    except (OSError, ValueError) as error:
        files = f"{config.ssl_certfile} and {config.ssl_keyfile}"
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        raise InvalidConfig(f"cannot use the certificate of {files}: {reason}") from None


def install(
    app: FastAPI, operations: Operations, metrics: ServerMetrics, *, model_name: str
) -> None:
    """Put the layers around the application, the innermost first."""
    config, keyring = operations.config, operations.keyring
    if len(keyring):
        limits = {key.name: key.limits for key in keyring}
        app.add_middleware(RateLimits, limits=limits, clock=operations.clock)
        app.add_middleware(ApiKeys, keyring=keyring, guard_metrics=config.guard_metrics)
    observers: list[Observer] = [RequestLog(shows_prompts=config.log_prompts)]
    if operations.tracing is not None:
        observers.append(partial(operations.tracing.record, model_name=model_name))
    app.add_middleware(
        RequestContext,
        metrics=metrics,
        observers=observers,
        max_header_bytes=config.max_header_bytes,
    )
    if config.cors_origins:  # outermost, so that a page can read refusals too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=SHOWN_TO_PAGES,
        )
