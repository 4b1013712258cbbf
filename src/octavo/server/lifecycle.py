# SPDX-License-Identifier: Apache-2.0
"""From ready over draining to stopped: which requests are live, and whether new ones may come.

Draining keeps the promise to those inside: nothing new is accepted, what runs may finish within a
limit, and what is left then ends with an error that its client can see. Event loop only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from octavo.server.errors import engine_unavailable

logger = logging.getLogger(__name__)


class Lifecycle:
    """``abort`` ends one engine request by its id; it must be idempotent."""

    def __init__(self, abort: Callable[[str], None]) -> None:
        self._abort = abort
        self._live: dict[str, None] = {}  # engine request ids, in order of arrival
        self._is_draining = False
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def num_live(self) -> int:
        return len(self._live)

    def check_open(self) -> None:
        """Raise ``ApiError`` 503 while draining."""
        if self._is_draining:
            raise engine_unavailable("the server is shutting down")

    @contextmanager
    def tracked(self, request_ids: Sequence[str]) -> Iterator[None]:
        """Keep these engine requests on the books; whatever happens they are off it afterwards.

        Raises ``ApiError`` 503 while draining.
        """
        self.check_open()
        self._live.update(dict.fromkeys(request_ids))
        self._is_empty.clear()
        try:
            yield
        finally:
            for request_id in request_ids:
                del self._live[request_id]
            if not self._live:
                self._is_empty.set()

    def start_draining(self) -> None:
        """Refuse new requests from now on. Idempotent; safe to call from a signal handler."""
        self._is_draining = True

    async def drain(self, limit_s: float) -> None:
        """Wait for the live requests, at most ``limit_s``; then abort those that are left."""
        self.start_draining()
        try:
            async with asyncio.timeout(limit_s):
                await self._is_empty.wait()
        except TimeoutError:
            logger.warning("%.1f s of grace are over", limit_s)
            self.abort_all()

    def abort_all(self) -> None:
        """End the live requests, each with an error that its client sees."""
        logger.warning("aborting %d requests", self.num_live)
        for request_id in list(self._live):
            self._abort(request_id)
