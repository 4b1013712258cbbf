# SPDX-License-Identifier: Apache-2.0
"""What the server needs of an engine, and no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from octavo.engine.admission import Admission
from octavo.metrics.engine_metrics import EngineStats
from octavo.types.outputs import RequestOutput
from octavo.types.request import Request


class ServingEngine(Protocol):
    """``engine.async_engine.AsyncEngine`` is one. None of the methods waits."""

    @property
    def admission(self) -> Admission:
        """The gate; used in worker threads."""

    @property
    def is_running(self) -> bool:
        """False before the engine starts, and for good once it has stopped or failed."""

    def generate(self, prompt: Request, /) -> AsyncGenerator[RequestOutput, None]:
        """Outputs until one is ``finished``. Raises ``EngineStopped``.

        Closing the generator early, or a cancellation inside it, aborts the request.
        """

    def abort(self, request_id: str) -> None:
        """End a request; its generator gives a last output. Idempotent; unknown ids are fine."""

    def stats(self) -> EngineStats:
        """A frozen picture of the last step; ``is_stuck`` in it is as of now."""
