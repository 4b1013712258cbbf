# SPDX-License-Identifier: Apache-2.0
"""One HTTP request and its answer, as keys, limits, log and spans see it.

It hangs in a context variable, which tasks and worker threads inherit, so that the layers around
the endpoints and the one place that runs prompts need not pass it through every endpoint between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from octavo.types.outputs import RequestOutput, Timeline
from octavo.types.request import Standing

if TYPE_CHECKING:
    from octavo.server.openai.generation import Job


def _nothing(num_tokens: int) -> None:
    """What tokens cost without limits."""


@dataclass(slots=True, eq=False)
class Exchange:
    """``started_s`` is monotonic, ``started_ns`` the time of day. ``route`` is the path as it was
    declared, with names in place of values. ``user`` is the name of the API key; None where no key
    was asked for. ``status`` is 0 until the answer begins. Event loop, but ``own``.
    """

    request_id: str
    method: str
    path: str
    started_s: float
    started_ns: int
    route: str = ""
    user: str | None = None
    status: int = 0
    spend_tokens: Callable[[int], None] = _nothing
    jobs: list[Job] = field(default_factory=list)

    def own(self, standing: Standing) -> Standing:
        """The standing of a request of this client: its key says who it is, and not its body."""
        return standing if self.user is None else replace(standing, user=self.user)

    def begin(self, job: Job) -> None:
        """A job of this request starts: its prompts are paid for."""
        self.jobs.append(job)
        self.spend_tokens(sum(len(request.prompt_token_ids) for request in job.requests))

    def count(self, before: RequestOutput | None, output: RequestOutput) -> None:
        """An output came, after another of the same prompt."""
        self.spend_tokens(output.num_output_tokens - (before.num_output_tokens if before else 0))

    @property
    def is_complete(self) -> bool:
        return all(job.is_complete for job in self.jobs)

    def finish_reasons(self) -> list[str]:
        return sorted({reason for job in self.jobs for reason in job.finish_reasons()})

    def usage(self) -> Usage:
        """Tokens so far, of all jobs."""
        outputs = [output for job in self.jobs for output in job.last.values()]
        requests = [request for job in self.jobs for request in job.requests]
        return Usage(
            prompt_tokens=sum(len(request.prompt_token_ids) for request in requests),
            cached_tokens=sum(output.num_cached_tokens for output in outputs),
            completion_tokens=sum(output.num_output_tokens for output in outputs),
        )

    def times(self) -> dict[str, float]:
        """Seconds by name, each of the prompt that it was longest for. Known when a request ends:
        what it spent where, and the time to its first token.
        """
        found: dict[str, float] = {}
        for job in self.jobs:
            for output in job.last.values():
                for name, spent in _times(output).items():
                    found[name] = max(spent, found.get(name, 0.0))
        return found


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


def _times(output: RequestOutput) -> dict[str, float]:
    metrics = output.metrics
    if metrics is None:
        return {}
    found: dict[str, float] = {}
    if metrics.timeline is not None:
        found = {part.name: getattr(metrics.timeline, part.name) for part in fields(Timeline)}
    if metrics.first_token_time is not None:
        found["time_to_first_token_s"] = metrics.first_token_time - metrics.arrival_time
    return found


_CURRENT: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def current() -> Exchange | None:
    """The exchange that this task, or worker thread, works for; None outside of a server."""
    return _CURRENT.get()


@contextmanager
def entered(exchange: Exchange) -> Iterator[None]:
    """Make it the current one for all that is called, and started, in here."""
    token = _CURRENT.set(exchange)
    try:
        yield
    finally:
        _CURRENT.reset(token)
