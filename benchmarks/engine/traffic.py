# SPDX-License-Identifier: Apache-2.0
"""Requests that come at their time, and what each of them got when."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise

from kit import GREEDY, HERE, ids, percentile
from simulated import RealClock, SimulatedClock

from octavo.engine.engine import Engine

AZURE = HERE.parent / "data" / "azure2023_conv_2000.csv"


@dataclass(frozen=True)
class Arrival:
    time_s: float
    prompt_len: int
    output_len: int
    user: str = ""


@dataclass
class Served:
    """One request's story; times in seconds since the run began."""

    arrival: Arrival
    token_times: list[float] = field(default_factory=list)

    @property
    def ttft_s(self) -> float:
        return self.token_times[0] - self.arrival.time_s

    @property
    def gaps_s(self) -> list[float]:
        return [later - one for one, later in pairwise(self.token_times)]

    def is_good(self, ttft_s: float, itl_s: float) -> bool:
        """First token in time, and the others on average."""
        gaps = self.gaps_s
        return self.ttft_s <= ttft_s and sum(gaps) <= itl_s * len(gaps)


@dataclass
class Report:
    served: list[Served]
    duration_s: float
    service_gap: float  # tokens: the widest that two users' service came apart, both waiting

    def ttft_ms(self, share: float, user: str | None = None) -> float:
        chosen = [one for one in self.served if user is None or one.arrival.user == user]
        return 1000 * percentile([one.ttft_s for one in chosen], share)

    def itl_ms(self, share: float) -> float:
        return 1000 * percentile([gap for one in self.served for gap in one.gaps_s], share)

    def goodput(self, ttft_s: float, itl_s: float) -> float:
        """Requests a second that met both targets."""
        return sum(one.is_good(ttft_s, itl_s) for one in self.served) / self.duration_s


def azure(length_divisor: int = 1) -> list[Arrival]:
    """The sample of the trace, its lengths divided and rounded up; at the trace's own times."""
    with AZURE.open() as file:
        rows = list(csv.DictReader(file))
    # Seven digits of a second; datetime takes six.
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    return [
        Arrival(
            (moment - times[0]).total_seconds(),
            max(2, -(-int(row["ContextTokens"]) // length_divisor)),
            max(1, -(-int(row["GeneratedTokens"]) // length_divisor)),
        )
        for moment, row in zip(times, rows, strict=True)
    ]


def at_load(arrivals: list[Arrival], load: float, capacity: float) -> list[Arrival]:
    """The same requests, closer together or further apart: so many times ``capacity``, in requests
    a second."""
    factor = len(arrivals) / (load * capacity * arrivals[-1].time_s)
    return [replace(one, time_s=one.time_s * factor) for one in arrivals]


def for_users(arrivals: list[Arrival], shares: dict[str, int]) -> list[Arrival]:
    """Deal requests out to users in turn, so many of each round to each of them."""
    names = [name for name, count in shares.items() for _ in range(count)]
    return [replace(one, user=names[idx % len(names)]) for idx, one in enumerate(arrivals)]


class _Service:
    """What users were given: a prompt token counts 1 and a sampled one 2."""

    def __init__(self) -> None:
        self.gap = 0.0
        self._given: Counter[str] = Counter()
        self._num_waiting: Counter[str] = Counter()
        self._level: dict[str, int] = {}  # when all of them began to wait

    def came(self, one: Served) -> None:
        self._num_waiting[one.arrival.user] += 1

    def got(self, one: Served) -> None:
        user, is_first = one.arrival.user, len(one.token_times) == 1
        self._given[user] += 2 + is_first * one.arrival.prompt_len
        self._num_waiting[user] -= is_first

    def compare(self) -> None:
        """Only while all of them wait: who asks for nothing is owed nothing."""
        waiting = [user for user, count in self._num_waiting.items() if count > 0]
        if len(waiting) < 2 or len(waiting) < len(self._num_waiting):
            self._level.clear()
            return
        self._level = self._level or dict(self._given)
        since = [self._given[user] - self._level.get(user, 0) for user in waiting]
        self.gap = max(self.gap, max(since) - min(since))


def replay(
    engine: Engine, clock: RealClock | SimulatedClock, arrivals: Iterable[Arrival]
) -> Report:
    """Serve the requests at their time. The engine may count its seconds from anywhere."""
    coming = sorted(arrivals, key=lambda one: one.time_s)
    served = [Served(one) for one in coming]
    service, idx, lag = _Service(), 0, engine.clock() - clock()
    while idx < len(coming) or engine.has_unfinished():
        if not engine.has_unfinished():
            clock.wait_until(coming[idx].time_s)
        while idx < len(coming) and coming[idx].time_s <= clock():
            _add(engine, idx, coming[idx], lag)
            service.came(served[idx])
            idx += 1
        outputs = engine.step()
        now = clock()
        for output in outputs:
            one = served[int(output.request_id)]
            one.token_times.append(now)
            service.got(one)
        service.compare()
    return Report(served, clock() - coming[0].time_s, service.gap)


def _add(engine: Engine, idx: int, one: Arrival, lag: float) -> None:
    params = replace(GREEDY, max_tokens=one.output_len)
    request = engine.admission.admit(ids(idx, one.prompt_len), params, request_id=str(idx))
    engine.add(replace(request, user=one.user), arrival_time=one.time_s + lag)
