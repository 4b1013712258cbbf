# SPDX-License-Identifier: Apache-2.0
"""What comes in at the asynchronous door beside plain requests: too much, searches, bad news."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from asynckit import PATIENCE_S, eventually, run
from enginekit import greedy, make_engine
from fakes import EchoExecutor
from octavo.engine.async_engine import AsyncEngine
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.config import RuntimeConfig
from octavo.types.errors import CorruptState, EngineOverloaded, EngineStopped


def test_tokens_that_may_wait_are_bounded() -> None:
    async def main() -> None:
        steps = threading.Semaphore(1)  # the first may run, and shows that somebody does
        executor = EchoExecutor(gate=lambda: steps.acquire(timeout=PATIENCE_S))
        runtime = RuntimeConfig(max_num_queued_tokens=20)
        engine = AsyncEngine(make_engine(executor, max_num_seqs=1, runtime=runtime))
        engine.start()

        async def ask(name: str, num_tokens: int) -> None:
            async for _ in engine.generate([1] * num_tokens, greedy(2), name):
                pass

        tasks = [asyncio.create_task(ask("a", 30))]
        await eventually(engine, lambda stats: stats.num_running == 1)
        tasks.append(asyncio.create_task(ask("b", 15)))
        await asyncio.sleep(0)
        with pytest.raises(EngineOverloaded, match="15 prompt tokens wait, and 6 more"):
            await ask("c", 6)
        tasks.append(asyncio.create_task(ask("d", 5)))
        steps.release(100)
        await asyncio.gather(*tasks)
        await ask("e", 30)  # nobody waits: any length may
        assert engine._num_prompt_tokens == 0
        engine.shutdown(PATIENCE_S)

    run(main)


def test_a_beam_search_goes_in_by_the_same_door() -> None:
    async def main() -> None:
        engine = AsyncEngine(make_engine())
        engine.start()
        params = BeamSearchParams(beam_width=4, n=2, max_tokens=5)
        outputs = [output async for output in engine.generate("abc", params, "beam")]
        engine.shutdown(PATIENCE_S)
        (last,) = outputs
        scores = [sample.score for sample in last.outputs]
        assert len(scores) == 2
        assert scores == sorted(scores, reverse=True)

    run(main)


def test_a_failure_of_the_engine_is_logged_with_its_traceback(caplog) -> None:
    def explode() -> None:
        raise CorruptState("the books are wet")

    async def main() -> None:
        engine = AsyncEngine(make_engine(EchoExecutor(gate=explode)))
        engine.start()
        failures = []
        for name in ("a", "b"):
            with pytest.raises(EngineStopped, match="the books are wet") as failed:
                await anext(engine.generate("abc", greedy(2), name))
            failures.append(failed.value)
        engine.shutdown(PATIENCE_S)
        assert failures[0] is not failures[1]
        assert all(isinstance(failure.__cause__, CorruptState) for failure in failures)

    with caplog.at_level(logging.CRITICAL, "octavo"):
        run(main)
    assert "in explode" in caplog.text
    assert "the engine has failed" in caplog.text
