# SPDX-License-Identifier: Apache-2.0
"""A whole benchmark of a server: prompts, a first request, warm-up, the measured load."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from octavo.bench.arrivals import arrival_times, replayed_times
from octavo.bench.http_client import HttpClient, Target, allow_many_connections
from octavo.bench.http_reply import BadReply
from octavo.bench.prompts import TRACES, Wish, make_samples
from octavo.bench.records import Record, Sample
from octavo.bench.sending import ENDPOINTS, Dialect, NoAnswer, Pace, run_load, served_model, settle
from octavo.bench.words import Counter, ServerCounter, WordCounter, Writer
from octavo.types.errors import InvalidConfig

TRACE = "trace"
FIRST_REQUEST = Sample("Count: one two three", 4, 4)


class Bar(Protocol):
    def advance(self, num_tokens: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. Bad values raise ``InvalidConfig``.

    model          None asks the server
    request_rate   per second, inf, or "trace" for the data set's own times; None is "trace" where
                   the data set has times, else inf
    time_scale     times of a trace are multiplied by it
    counter        of prompt tokens; None asks the server, and else counts words
    extra          fields of every request
    """

    target: Target
    wish: Wish
    backend: str = "openai"
    endpoint: str | None = None
    model: str | None = None
    request_rate: float | str | None = None
    burstiness: float = 1.0
    time_scale: float = 1.0
    max_concurrency: int | None = None
    num_warmups: int = 0
    timeout_s: float = 6 * 3600.0
    ignore_eos: bool = False
    counter: Counter | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.backend not in ENDPOINTS:
            known = ", ".join(ENDPOINTS)
            raise InvalidConfig(f"--backend must be one of {known}; got {self.backend!r:.60}")
        path = self.path
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise InvalidConfig(f"--endpoint must be like /v1/completions; got {path!r:.60}")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise InvalidConfig(f"--max-concurrency must be at least 1; got {self.max_concurrency}")
        at_s = 0.0 if self.wish.name in TRACES else None
        self.due_times([Sample("", 1, 1, at_s)])  # a bad rate should not cost the prompts

    @property
    def path(self) -> str:
        return ENDPOINTS[self.backend] if self.endpoint is None else self.endpoint

    @property
    def rate(self) -> float | str:
        if self.request_rate is not None:
            return self.request_rate
        return TRACE if self.wish.name in TRACES else float("inf")

    def due_times(self, samples: Sequence[Sample]) -> list[float]:
        """In seconds after the first. Raises ``InvalidConfig``."""
        if isinstance(self.rate, str):
            return replayed_times([sample.at_s for sample in samples], self.time_scale)
        rng = random.Random(f"{self.wish.seed} arrivals")
        return arrival_times(len(samples), self.rate, rng, burstiness=self.burstiness)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Records, in the order in which they were due, and what was found out on the way."""

    records: Sequence[Record]
    model: str
    counter_name: str


async def run(
    plan: Plan,
    make_bar: Callable[[int], AbstractContextManager[Bar]],
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Raises ``NoAnswer`` if the server does not answer at all, ``BadDataset``, ``InvalidConfig``;
    failures later on are in the records. ``say`` gets what the user should know, a line each."""
    allow_many_connections()
    client = HttpClient(plan.target)
    try:
        return await _run(plan, client, make_bar, say)
    finally:
        client.close()


async def _run(
    plan: Plan,
    client: HttpClient,
    make_bar: Callable[[int], AbstractContextManager[Bar]],
    say: Callable[[str], None],
) -> Outcome:
    model = plan.model or await served_model(client)
    dialect = Dialect(plan.backend, plan.path, model, extra=plan.extra, ignore_eos=plan.ignore_eos)
    dialect, _ = await settle(client, dialect, FIRST_REQUEST, plan.timeout_s)
    for name in sorted(dialect.without):
        say(f"the server refuses {name}: it is left out")
    writer = Writer(plan.counter or await _counter(client, model))
    say(f"token numbers by {writer.counter.name}")
    samples = await _samples(plan, writer, say)
    pace = Pace(plan.due_times(samples), plan.max_concurrency, plan.timeout_s)
    await _warm_up(plan, client, dialect, samples, writer)
    gc.freeze()  # a collection in the middle of the run would be a pause of every answer
    try:
        with make_bar(len(samples)) as bar:
            records = await run_load(
                client, dialect, samples, pace, lambda record: bar.advance(record.num_output_tokens)
            )
    finally:
        gc.unfreeze()
    return Outcome(records, model, writer.counter.name)


async def _counter(client: HttpClient, model: str) -> Counter:
    return await ServerCounter.find(client, model) or WordCounter()


async def _samples(plan: Plan, writer: Writer, say: Callable[[str], None]) -> list[Sample]:
    try:
        samples = await make_samples(plan.wish, writer)
    except (BadReply, OSError) as error:
        raise NoAnswer(f"{plan.target.url} stopped counting tokens: {error}") from error
    if len(samples) < plan.wish.count:
        say(
            f"{len(samples)} requests instead of {plan.wish.count}: the data set has no more "
            "that fit"
        )
    return samples


async def _warm_up(
    plan: Plan, client: HttpClient, dialect: Dialect, samples: Sequence[Sample], writer: Writer
) -> None:
    """Prompts of the same lengths but other words: a prefix cache must not learn the measured."""
    others = []
    for idx in range(plan.num_warmups):
        like = samples[idx % len(samples)]
        rng = random.Random(f"{plan.wish.seed} warm-up {idx}")
        text, count = await writer.write(rng, like.num_prompt_tokens)
        others.append(replace(like, prompt=text, num_prompt_tokens=count))
    if others:
        pace = Pace([0.0] * len(others), plan.max_concurrency, plan.timeout_s)
        await run_load(client, dialect, others, pace)
