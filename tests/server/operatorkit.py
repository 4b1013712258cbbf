# SPDX-License-Identifier: Apache-2.0
"""An engine that stands still while it is looked at: a test steps it by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI
from serverkit import running

from enginekit import greedy, make_engine
from fakes import ByteTokenizer, EchoExecutor, ManualClock
from octavo.engine.engine import Engine
from octavo.server.app import build_app
from octavo.types.sampling_params import SamplingParams

SECRET = "xyzzy"  # in every prompt: no view may show it
PROMPT = f"{SECRET} " * 4  # 24 tokens: three blocks of 8


class StillEngine:
    """Answers questions where ``AsyncEngine`` would ask its thread."""

    is_running = True
    is_full = False

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.admission = engine.admission
        self.trace = engine.trace
        self.stats = engine.stats

    async def ask(self, question):
        return question(self.engine)

    def abort(self, request_id: str) -> None:
        self.engine.abort(request_id)


def app_over(engine: Engine, *, debug_routes: bool = True) -> FastAPI:
    still = StillEngine(engine)
    return build_app(still, ByteTokenizer(), model_name="echo", debug_routes=debug_routes)


@contextmanager
def served(engine: Engine, *, debug_routes: bool = True) -> Iterator[str]:
    with running(app_over(engine, debug_routes=debug_routes)) as url:
        yield url


def busy_engine() -> Engine:
    """``pair-1`` has run for three steps, with two samples; ``late-1`` waits for a seat."""
    engine = make_engine(EchoExecutor(num_blocks=64), clock=ManualClock(5.0), max_num_seqs=2)
    engine.add_request(
        "pair-1", PROMPT, SamplingParams(n=2, temperature=1, max_tokens=30, ignore_eos=True)
    )
    for _ in range(3):
        engine.step()
        engine.clock.advance(0.5)
    engine.add_request("late-1", PROMPT, greedy())
    engine.step()
    engine.clock.advance(0.25)
    return engine


def swapping_engine() -> Engine:
    """Too few blocks for what runs, so that somebody has been swapped out."""
    executor = EchoExecutor(num_blocks=12, num_swap_blocks=64)
    engine = make_engine(executor, preemption_mode="swap")
    for number in range(4):
        engine.add_request(f"r{number}", f"{number}{PROMPT}", greedy(30))
    for _ in range(200):
        engine.step()
        if engine.stats().num_swapped:
            return engine
    raise AssertionError("nobody was swapped out")
