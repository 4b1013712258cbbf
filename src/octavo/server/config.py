# SPDX-License-Identifier: Apache-2.0
"""The settings of a server beside those of its engine: who may use it, how much, and what it tells.

docs/operating.md explains them, docs/settings.md lists them; each is a flag of ``octavo serve``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from octavo.types.config import check_choice, check_range, check_seconds
from octavo.types.errors import InvalidConfig

LOG_FORMATS = ("text", "json")
HEADER_BYTES_MAX = 32 * 2**10
BODY_BYTES_MAX = 8 * 2**20
DRAIN_S = 30.0  # what an orchestrator's default grace period allows


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """api_key: keys that let their holder in; api_key_file: a file with more of them, their names
    and their own limits. Without any key everybody who can connect is let in. guard_metrics: GET
    /metrics needs a key too.

    requests_per_minute, tokens_per_minute, tokens_per_day: what each key may use, [0, 2**40]; 0 has
    no limit. Tokens are those of prompts and of answers.

    ssl_certfile, ssl_keyfile: PEM files; with them the server speaks HTTPS and nothing else.
    cors_origins: web pages from there may use the server from a browser; ``*`` is any page.

    max_body_bytes, [1, 2**40], and max_header_bytes, [1024, 2**24]: larger requests are refused.
    drain_timeout_s: what running answers get to finish after SIGTERM, [0, 86400].

    log_format: text, or json with one object a line. log_prompts: the log shows what was asked.
    otlp_traces_endpoint: URL of a collector that takes spans by OTLP over HTTP.
    """

    api_key: tuple[str, ...] = field(default=(), repr=False)
    api_key_file: str | None = None
    guard_metrics: bool = False
    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    tokens_per_day: int = 0
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = BODY_BYTES_MAX
    max_header_bytes: int = HEADER_BYTES_MAX
    drain_timeout_s: float = DRAIN_S
    log_format: str = "text"
    log_prompts: bool = False
    otlp_traces_endpoint: str | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "tokens_per_day"):
            check_range(name, getattr(self, name), 0, 2**40)
        check_range("max_body_bytes", self.max_body_bytes, 1, 2**40)
        check_range("max_header_bytes", self.max_header_bytes, 1024, 2**24)
        check_seconds("drain_timeout_s", self.drain_timeout_s, 0, 86400)
        check_choice("log_format", self.log_format, LOG_FORMATS)
        if (self.ssl_certfile is None) != (self.ssl_keyfile is None):
            raise InvalidConfig("ssl_certfile and ssl_keyfile belong together; give both")
        for origin in self.cors_origins:
            _check_origin(origin)
        if self.otlp_traces_endpoint is not None:
            _check_url("otlp_traces_endpoint", self.otlp_traces_endpoint)


def _check_origin(origin: str) -> None:
    """An origin is what a browser sends, so anything else would never match, and nobody notice."""
    parts = urlsplit(origin)
    is_origin = parts.scheme in ("http", "https") and origin == f"{parts.scheme}://{parts.netloc}"
    if origin != "*" and not (is_origin and parts.netloc):
        raise InvalidConfig(
            f"cors_origins must be * or look like https://example.org:8443, got {origin!r}"
        )


def _check_url(name: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidConfig(f"{name} must be an http or https URL, got {url!r}")
