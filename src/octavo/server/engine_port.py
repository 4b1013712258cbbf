# SPDX-License-Identifier: Apache-2.0
"""What the server needs of an engine, and no more."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol, TypeVar

from octavo.engine.admission import Admission
from octavo.engine.engine import Engine
from octavo.engine.trace import Trace
from octavo.metrics.engine_metrics import EngineStats
from octavo.types.outputs import RequestOutput
from octavo.types.request import Request

T = TypeVar("T")


class ServingEngine(Protocol):
    """``engine.async_engine.AsyncEngine`` is one. No method but ``ask`` waits."""

    @property
    def admission(self) -> Admission:
        """The gate; used in worker threads."""

    @property
    def is_running(self) -> bool:
        """False before the engine starts, and for good once it has stopped or failed."""

    @property
    def is_full(self) -> bool:
        """Whether a request that came now would be refused, because as many wait as may."""

    def generate(self, prompt: Request, /) -> AsyncGenerator[RequestOutput, None]:
        """Outputs until one is ``finished``. Raises ``EngineStopped``.

        Closing the generator early, or a cancellation inside it, aborts the request.
        """

    def abort(self, request_id: str) -> None:
        """End a request; its generator gives a last output. Idempotent; unknown ids are fine."""

    def stats(self) -> EngineStats:
        """A frozen picture of the last step; ``is_stuck`` in it is as of now."""

    @property
    def trace(self) -> Trace:
        """What happened lately."""

    async def ask(self, question: Callable[[Engine], T], /) -> T:
        """What ``question`` says about the engine, asked in its thread between two steps. Raises
        ``EngineStopped``, and what the question raises.
        """
