# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import threading
from dataclasses import replace

import pytest

from enginekit import make_engine
from fakes import ManualClock
from octavo.engine.queue_bounds import (
    MARK_S,
    RETRY_MAX_S,
    RETRY_UNKNOWN_S,
    WINDOW_S,
    QueueBounds,
)
from octavo.metrics.engine_metrics import EngineMetrics, EngineStats
from octavo.types.config import RuntimeConfig
from octavo.types.errors import EngineOverloaded


def stats(*, running: int = 0, started: int = 0, ttfts: int = 0, prompts: int = 0) -> EngineStats:
    metrics = EngineMetrics()
    for _ in range(ttfts):
        metrics.ttft_s.observe(1.0)
    return replace(
        make_engine().stats(),
        num_running=running,
        num_started_prompt_tokens=started,
        ttft_s=metrics.ttft_s.snapshot(),
        prompt_tokens_total=prompts,
    )


def bounds(clock: ManualClock, **config: int) -> QueueBounds:
    return QueueBounds(RuntimeConfig(**config), clock)


def retry_s(one: QueueBounds, *, inside: int, tokens: int, new: int, now: EngineStats) -> int:
    with pytest.raises(EngineOverloaded) as refused:
        one.check(num_inside=inside, num_tokens_inside=tokens, new=new, now=now)
    return refused.value.retry_after_s


def test_no_bound_by_default() -> None:
    one = bounds(ManualClock())
    one.check(num_inside=10**6, num_tokens_inside=10**9, new=10**6, now=stats())


def test_requests_that_run_do_not_count() -> None:
    one = bounds(ManualClock(), max_num_queued_reqs=2)
    one.check(num_inside=5, num_tokens_inside=50, new=10, now=stats(running=4))
    assert retry_s(one, inside=6, tokens=60, new=10, now=stats(running=4)) == RETRY_UNKNOWN_S


def test_tokens_that_wait_are_bounded_but_one_prompt_always_may() -> None:
    one = bounds(ManualClock(), max_num_queued_tokens=100)
    one.check(num_inside=1, num_tokens_inside=500, new=10**6, now=stats(running=1, started=500))
    one.check(num_inside=2, num_tokens_inside=560, new=40, now=stats(running=1, started=500))
    now = stats(running=1, started=500)
    assert retry_s(one, inside=2, tokens=560, new=41, now=now) == RETRY_UNKNOWN_S


def test_retry_is_the_excess_at_the_measured_pace() -> None:
    """Two requests and 50 prompt tokens start each second."""
    clock = ManualClock()
    one = bounds(clock, max_num_queued_reqs=4, max_num_queued_tokens=100)
    for second in range(11):
        one.observe(stats(ttfts=2 * second, prompts=50 * second))
        clock.advance(1.0)
    assert retry_s(one, inside=4, tokens=0, new=1, now=stats()) == 1  # half a second, rounded up
    assert retry_s(one, inside=9, tokens=0, new=1, now=stats()) == 3
    assert retry_s(one, inside=1, tokens=100, new=400, now=stats()) == 8
    clock.advance(WINDOW_S + 1)
    assert retry_s(one, inside=9, tokens=0, new=1, now=stats()) == RETRY_UNKNOWN_S  # long ago


def test_a_standstill_is_as_long_as_it_gets() -> None:
    clock = ManualClock()
    one = bounds(clock, max_num_queued_reqs=1)
    for _ in range(5):
        one.observe(stats(ttfts=3))
        clock.advance(1.0)
    assert retry_s(one, inside=1, tokens=0, new=1, now=stats()) == RETRY_MAX_S


def test_the_engine_observes_while_others_ask() -> None:
    clock = ManualClock()
    one = bounds(clock, max_num_queued_reqs=1)
    now, failures = stats(ttfts=1), list[Exception]()
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            try:
                retry_s(one, inside=1, tokens=1, new=1, now=now)
            except Exception as error:
                failures.append(error)
                return

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # a reader is interrupted in the midst of its look
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(5000):
            clock.advance(MARK_S)
            one.observe(now)
    finally:
        sys.setswitchinterval(interval_s)
        is_over.set()
        asking.join()
    assert not failures
