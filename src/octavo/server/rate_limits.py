# SPDX-License-Identifier: Apache-2.0
"""How much each API key may use: requests and tokens, by token buckets.

A request is taken when every bucket of its key has something left, and pays for its tokens as they
come: the prompt when it starts, the answer token by token. So a key can overdraw by what it has
running, and then waits until the debt has been paid; nobody must guess how long an answer will be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server import exchange
from octavo.server.errors import ApiError
from octavo.types.ports import Clock

MINUTE_S, DAY_S = 60.0, 86400.0
RETRY_MAX_S = 86400  # what a client is told at most, however deep in debt its key is


@dataclass(frozen=True, slots=True)
class Limits:
    """What a key may use; 0 has no limit. Tokens are those of prompts and of answers."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    tokens_per_day: int = 0


class TokenBucket:
    """``capacity`` units that come back evenly over ``window_s``. Not thread-safe."""

    def __init__(self, capacity: int, window_s: float, clock: Clock) -> None:
        self.capacity = capacity
        self._per_s = capacity / window_s
        self._clock = clock
        self._level = float(capacity)
        self._as_of = clock()

    @property
    def level(self) -> float:
        """Units that are there; negative is a debt."""
        now = self._clock()
        self._level = min(self.capacity, self._level + self._per_s * max(0.0, now - self._as_of))
        self._as_of = now
        return self._level

    def spend(self, amount: float) -> None:
        """Take units, whether they are there or not."""
        self._level = self.level - amount

    def wait_s(self, level: float) -> float:
        """Seconds until so many units are there; 0 when they are."""
        return max(0.0, (min(level, self.capacity) - self.level) / self._per_s)


class Account:
    """One key's buckets. Event loop only."""

    def __init__(self, name: str, limits: Limits, clock: Clock) -> None:
        self._name = name
        windows = {
            "requests_per_minute": (limits.requests_per_minute, MINUTE_S),
            "tokens_per_minute": (limits.tokens_per_minute, MINUTE_S),
            "tokens_per_day": (limits.tokens_per_day, DAY_S),
        }
        self._buckets = {
            limit: TokenBucket(capacity, window_s, clock)
            for limit, (capacity, window_s) in windows.items()
            if capacity
        }

    def enter(self) -> None:
        """Pay for one request. Raises ``ApiError`` 429, and takes nothing, if a bucket is empty."""
        waits = {limit: bucket.wait_s(1.0) for limit, bucket in self._buckets.items()}
        limit = max(waits, key=lambda name: waits[name], default="")
        if limit and waits[limit] > 0.0:
            raise self._refusal(limit, waits[limit])
        if "requests_per_minute" in self._buckets:
            self._buckets["requests_per_minute"].spend(1.0)

    def spend_tokens(self, num_tokens: int) -> None:
        for limit, bucket in self._buckets.items():
            if limit.startswith("tokens"):
                bucket.spend(num_tokens)

    def headers(self) -> dict[str, str]:
        """Limit, rest and time to a full bucket, under the names that clients look for.

        Of the two limits of tokens the one that has less left.
        """
        shown: dict[str, TokenBucket] = {}
        for limit, bucket in self._buckets.items():
            unit = limit.partition("_")[0]
            if unit not in shown or bucket.level < shown[unit].level:
                shown[unit] = bucket
        found: dict[str, str] = {}
        for unit, bucket in shown.items():
            found[f"x-ratelimit-limit-{unit}"] = str(bucket.capacity)
            found[f"x-ratelimit-remaining-{unit}"] = str(max(0, math.floor(bucket.level)))
            found[f"x-ratelimit-reset-{unit}"] = f"{bucket.wait_s(bucket.capacity):.3f}s"
        return found

    def _refusal(self, limit: str, wait_s: float) -> ApiError:
        retry_s = min(RETRY_MAX_S, max(1, math.ceil(wait_s)))
        words = f"{self._buckets[limit].capacity} {limit.replace('_', ' ')}"
        return ApiError(
            429,
            f"the API key {self._name} has used up its {words}; retry in {retry_s} s",
            code="rate_limit_exceeded",
            headers={"retry-after": str(retry_s), **self.headers()},
        )


class RateLimits:
    """ASGI middleware behind the one that knows the key: counts what its POSTs use.

    Reading (GET) costs nothing and is not counted.
    """

    def __init__(self, app: ASGIApp, limits: Mapping[str, Limits], clock: Clock) -> None:
        """``limits`` by the name of the key."""
        self._app = app
        self._accounts = {name: Account(name, limits[name], clock) for name in limits}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        current = exchange.current()
        account = self._accounts.get(current.user or "") if current else None
        if account is None or current is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        account.enter()
        current.spend_tokens = account.spend_tokens

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(account.headers())
            await send(message)

        await self._app(scope, receive, send_with_limits)
