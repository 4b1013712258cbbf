# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager

import pytest

from asynckit import PATIENCE_S, eventually, run
from enginekit import greedy, make_engine
from fakes import EchoExecutor, expected_tokens
from octavo.engine.async_engine import AsyncEngine
from octavo.metrics.engine_metrics import EngineStats
from octavo.types.config import RuntimeConfig
from octavo.types.errors import EngineOverloaded, EngineStopped, InvalidRequest
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import OutputKind
from octavo.types.step import StepPlan


class Gate:
    """Lets an executor through once for each ``open``, or freely after ``remove``."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)
        self._is_removed = False

    def __call__(self) -> None:
        if not self._is_removed:
            assert self._permits.acquire(timeout=PATIENCE_S), "the gate was never opened"

    def open(self, count: int = 1) -> None:
        self._permits.release(count)

    def remove(self) -> None:
        self._is_removed = True
        self._permits.release()


@contextmanager
def running(executor: EchoExecutor | None = None, **limits: int) -> Iterator[AsyncEngine]:
    engine = AsyncEngine(make_engine(executor, **limits))  # type: ignore[arg-type]
    engine.start()
    try:
        yield engine
    finally:
        engine.shutdown(PATIENCE_S)
        assert not engine.is_running


async def tokens_of(outputs: AsyncIterator[RequestOutput]) -> list[int]:
    received: list[int] = []
    async for output in outputs:
        received += output.outputs[0].token_ids
    return received


def is_idle(stats: EngineStats) -> bool:
    return stats.num_running == stats.num_waiting == stats.num_used_blocks == 0


@pytest.mark.parametrize("depth", [1, 2])
def test_concurrent_streams_get_their_own_tokens(depth: int) -> None:
    async def main() -> None:
        with running(EchoExecutor(num_blocks=20, depth=depth)) as engine:
            params = greedy(15, output_kind=OutputKind.DELTA)
            streams = [engine.generate([i], params, f"r{i}") for i in range(40)]
            answers = await asyncio.gather(*map(tokens_of, streams))
            assert answers == [expected_tokens([i], 15) for i in range(40)]
            await eventually(engine, is_idle)

    run(main)


def test_several_loops_share_one_engine() -> None:
    answers: dict[int, list[int]] = {}

    def client(engine: AsyncEngine, i: int) -> None:
        async def main() -> None:
            params = greedy(15, output_kind=OutputKind.DELTA)
            answers[i] = await tokens_of(engine.generate([i], params, f"r{i}"))

        run(main)

    with running() as engine:
        threads = [threading.Thread(target=client, args=(engine, i)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert answers == {i: expected_tokens([i], 15) for i in range(6)}


def test_an_admitted_request_is_taken_as_it_is() -> None:
    async def main() -> None:
        with running() as engine:
            request = engine.admission.admit("ab", greedy(3), request_id="r")
            outputs = [output async for output in engine.generate(request)]
            assert outputs[-1].outputs[0].token_ids == tuple(expected_tokens(b"ab", 3))

    run(main)


class TestRefusals:
    def test_a_bad_prompt(self) -> None:
        async def main() -> None:
            with running() as engine:
                with pytest.raises(InvalidRequest, match="empty"):
                    await anext(engine.generate("", greedy(), "r"))
                with pytest.raises(InvalidRequest, match="needs params"):
                    await anext(engine.generate("a"))

        run(main)

    def test_an_id_in_use(self) -> None:
        async def main() -> None:
            gate = Gate()
            with running(EchoExecutor(gate=gate)) as engine:
                first = engine.generate("a", greedy(), "r")
                waiting = asyncio.ensure_future(anext(first))
                await eventually(engine, lambda _: "r" in engine._ids)
                with pytest.raises(InvalidRequest, match="'r' is in use"):
                    await anext(engine.generate("b", greedy(), "r"))
                gate.remove()
                await waiting
                assert [output async for output in first][-1].finished
                # The end was seen, so the name is free at once.
                assert (await anext(engine.generate("b", greedy(1), "r"))).finished

        run(main)

    def test_what_the_engine_itself_refuses_reaches_its_own_stream(self) -> None:
        async def main() -> None:
            def seeds() -> int:
                raise ValueError("no entropy")

            sync_engine = make_engine(seeds=seeds)
            engine = AsyncEngine(sync_engine)
            engine.start()
            with pytest.raises(ValueError, match="no entropy"):
                await anext(engine.generate("a", greedy(), "unlucky"))
            answer = await anext(engine.generate("a", greedy(1, seed=1), "lucky"))
            assert answer.finished
            engine.shutdown(PATIENCE_S)

        run(main)


class TestLeaving:
    def test_closing_the_generator_frees_the_blocks(self) -> None:
        async def main() -> None:
            gate = Gate()
            with running(EchoExecutor(gate=gate)) as engine:
                gate.open(2)
                async with aclosing(engine.generate([1], greedy(40), "r")) as outputs:
                    await anext(outputs)
                    await eventually(engine, lambda stats: stats.num_used_blocks > 0)
                gate.remove()
                await eventually(engine, is_idle)
                assert engine.stats().finished_total["abort"] == 1

        run(main)

    def test_cancelling_the_consumer_frees_the_blocks(self) -> None:
        async def main() -> None:
            gate = Gate()
            with running(EchoExecutor(gate=gate)) as engine:
                gate.open(2)
                outputs = engine.generate([1], greedy(40), "r")
                task = asyncio.create_task(tokens_of(outputs))
                await eventually(engine, lambda stats: stats.num_used_blocks > 0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                gate.remove()
                await eventually(engine, is_idle)
                assert engine.stats().finished_total["abort"] == 1

        run(main)

    def test_an_id_used_again_at_once_gets_only_its_own_answer(self) -> None:
        async def main() -> None:
            gate = Gate()
            with running(EchoExecutor(gate=gate), max_model_len=500) as engine:
                gate.open()
                first = engine.generate([1], greedy(400), "r")
                await anext(first)
                await first.aclose()  # the engine is inside a step: abort and add arrive together
                second = engine.generate([2], greedy(3, output_kind=OutputKind.DELTA), "r")
                received = asyncio.create_task(tokens_of(second))
                await eventually(engine, lambda _: "r" in engine._ids)
                gate.remove()
                assert await received == expected_tokens([2], 3)

        run(main)

    def test_a_loop_that_closed_with_open_streams_costs_only_its_own_requests(self) -> None:
        gate = Gate()
        with running(EchoExecutor(num_blocks=64, gate=gate), max_model_len=500) as engine:
            loop = asyncio.new_event_loop()
            abandoned = engine.generate([1], greedy(400), "r")
            waiting = loop.create_task(anext(abandoned))  # type: ignore[arg-type]
            gate.open()
            loop.run_until_complete(waiting)
            loop.close()
            gate.remove()

            async def main() -> None:
                answer = engine.generate([2], greedy(3, output_kind=OutputKind.DELTA), "other")
                assert await tokens_of(answer) == expected_tokens([2], 3)
                await eventually(engine, is_idle)
                assert not engine._ids

            run(main)


class TestAbort:
    def test_from_elsewhere_ends_the_stream_with_a_last_output(self) -> None:
        async def main() -> None:
            gate = Gate()
            with running(EchoExecutor(gate=gate)) as engine:
                gate.open()
                outputs = engine.generate([1], greedy(40), "r")
                await anext(outputs)
                engine.abort("r")
                engine.abort("r")
                engine.abort("stranger")
                gate.remove()
                last = [output async for output in outputs][-1]
                assert last.outputs[0].finish_reason == "abort"
                await eventually(engine, is_idle)

        run(main)

    def test_during_a_step_its_result_is_not_answered(self) -> None:
        async def main() -> None:
            gate = Gate()
            executor = EchoExecutor(gate=gate)
            with running(executor) as engine:
                gate.open()
                outputs = engine.generate([1], greedy(40), "r")
                await anext(outputs)
                await eventually(engine, lambda _: len(executor.plans) == 2)
                engine.abort("r")
                gate.remove()
                last = await anext(outputs)
                assert (last.outputs[0].finish_reason, last.num_output_tokens) == ("abort", 1)

        run(main)


class TestFailure:
    def test_a_failed_step_ends_its_streams_and_the_engine_goes_on(self) -> None:
        async def main() -> None:
            executor = EchoExecutor()
            executor.fail_steps.add(2)
            with running(executor) as engine:
                last = [output async for output in engine.generate([1], greedy(), "r")][-1]
                assert (last.outputs[0].finish_reason, last.error) == (
                    "error",
                    "step 2 failed on purpose",
                )
                last = [output async for output in engine.generate([1], greedy(), "s")][-1]
                assert last.outputs[0].finish_reason == "length"

        run(main)

    def test_a_dead_engine_ends_every_stream_and_refuses_new_ones(self) -> None:
        class Dying(EchoExecutor):
            def submit(self, plan: StepPlan) -> None:
                if plan.step_id == 3:
                    raise MemoryError("the worker is gone")
                super().submit(plan)

        async def main() -> None:
            executor = Dying()
            with running(executor) as engine:
                streams = [engine.generate([i], greedy(40), f"r{i}") for i in range(5)]
                ends = await asyncio.gather(*map(tokens_of, streams), return_exceptions=True)
                assert all(isinstance(end, EngineStopped) for end in ends), ends
                assert "the worker is gone" in str(ends[0])
                assert not engine.is_running
                await eventually(engine, lambda _: executor.is_closed)
                with pytest.raises(EngineStopped, match="the worker is gone"):
                    await anext(engine.generate([1], greedy(), "late"))
                assert await engine.drain(PATIENCE_S)

        run(main)


class TestShutdown:
    def test_what_is_pending_ends_with_engine_stopped(self) -> None:
        async def main() -> None:
            gate = Gate()
            executor = EchoExecutor(gate=gate)
            with running(executor, max_num_seqs=1) as engine:
                streams = [engine.generate([i], greedy(40), f"r{i}") for i in range(3)]
                ends = asyncio.gather(*map(tokens_of, streams), return_exceptions=True)
                await eventually(engine, lambda _: len(engine._ids) == 3)
                stopping = asyncio.create_task(asyncio.to_thread(engine.shutdown, PATIENCE_S))
                await eventually(engine, lambda _: engine._is_draining)
                gate.remove()
                await stopping
                assert all(isinstance(end, EngineStopped) for end in await ends)
                assert executor.is_closed
                assert is_idle(engine.stats())

        run(main)

    def test_it_is_idempotent_and_works_before_the_start(self) -> None:
        executor = EchoExecutor()
        engine = AsyncEngine(make_engine(executor))
        engine.shutdown()
        engine.shutdown()
        engine.abort("r")
        assert executor.is_closed
        with pytest.raises(EngineStopped):
            engine.start()

    def test_a_request_before_the_start_waits_for_it(self) -> None:
        async def main() -> None:
            engine = AsyncEngine(make_engine())
            waiting = asyncio.ensure_future(anext(engine.generate("a", greedy(1), "r")))
            await asyncio.sleep(0)
            engine.start()
            assert (await waiting).finished
            engine.shutdown(PATIENCE_S)

        run(main)


class TestDrain:
    def test_it_waits_for_those_inside_and_takes_no_more(self) -> None:
        async def main() -> None:
            gate = Gate()
            with running(EchoExecutor(gate=gate)) as engine:
                inside = asyncio.create_task(tokens_of(engine.generate([1], greedy(3), "r")))
                await eventually(engine, lambda _: "r" in engine._ids)
                assert not await engine.drain(0.01)
                with pytest.raises(EngineStopped, match="takes no more"):
                    await anext(engine.generate([1], greedy(), "late"))
                draining = asyncio.create_task(engine.drain(PATIENCE_S))
                gate.remove()
                assert await draining
                assert inside.done() or await inside
                assert is_idle(engine.stats())

        run(main)

    def test_it_ends_with_the_engine(self) -> None:
        async def main() -> None:
            gate = Gate()
            executor = EchoExecutor(gate=gate)
            with running(executor) as engine:
                inside = asyncio.create_task(tokens_of(engine.generate([1], greedy(40), "r")))
                await eventually(engine, lambda _: len(executor.plans) == 1)
                draining = asyncio.create_task(engine.drain(PATIENCE_S))
                stopping = asyncio.create_task(asyncio.to_thread(engine.shutdown, PATIENCE_S))
                await eventually(engine, lambda _: engine._inbox.qsize() == 2)
                gate.open()  # the step in flight, and no more
                await stopping
                assert await draining
                with pytest.raises(EngineStopped):
                    await inside

        run(main)

    def test_an_idle_engine_is_drained_at_once(self) -> None:
        async def main() -> None:
            with running() as engine:
                assert await engine.drain(PATIENCE_S)

        run(main)


def test_a_step_wakes_a_loop_once_however_many_streams_it_has() -> None:
    async def main() -> None:
        wakes = 0
        loop = asyncio.get_running_loop()
        real = loop.call_soon_threadsafe

        def counting(*args: object, **kwargs: object) -> object:
            nonlocal wakes
            wakes += 1
            return real(*args, **kwargs)  # type: ignore[arg-type]

        executor = EchoExecutor()
        with running(executor) as engine:
            requests = [
                engine.admission.admit([i], greedy(10), request_id=f"r{i}") for i in range(8)
            ]
            loop.call_soon_threadsafe = counting  # type: ignore[assignment]
            await asyncio.gather(*(tokens_of(engine.generate(request)) for request in requests))
            loop.call_soon_threadsafe = real  # type: ignore[method-assign]
        assert 0 < wakes <= len(executor.plans)

    run(main)


class TestAsking:
    def test_a_question_is_answered_between_two_steps_in_the_engines_thread(self) -> None:
        async def main() -> None:
            with running() as engine:
                thread = await engine.ask(lambda inner: threading.current_thread().name)
                assert thread == "octavo-scheduler"
                stream = asyncio.create_task(tokens_of(engine.generate([1], greedy(30), "r")))
                assert await engine.ask(lambda inner: inner.live_seq_ids()) is not None
                await stream

        run(main)

    def test_what_it_raises_reaches_whoever_asked_and_nobody_else(self) -> None:
        async def main() -> None:
            with running() as engine:
                with pytest.raises(ZeroDivisionError):
                    await engine.ask(lambda inner: 1 / 0)
                assert await engine.ask(lambda inner: 5) == 5

        run(main)

    def test_a_stopped_engine_answers_no_questions(self) -> None:
        async def main() -> None:
            with running() as engine:
                engine.shutdown(PATIENCE_S)
                with pytest.raises(EngineStopped):
                    await engine.ask(lambda inner: 5)

        run(main)


def test_a_queue_that_is_full_refuses_and_takes_again_when_it_is_shorter() -> None:
    async def main() -> None:
        gate = Gate()
        executor = EchoExecutor(num_rows=1, gate=gate)
        engine = AsyncEngine(
            make_engine(executor, max_num_seqs=1, runtime=RuntimeConfig(max_num_queued_reqs=2))
        )
        engine.start()
        tasks = []
        for idx in range(3):  # one runs, two wait
            tasks.append(asyncio.create_task(tokens_of(engine.generate([1], greedy(3), f"r{idx}"))))
            if idx == 0:
                gate.open()
                await eventually(engine, lambda stats: stats.num_running == 1)
                assert not engine.is_full
            await asyncio.sleep(0)
        with pytest.raises(EngineOverloaded, match="2 requests wait; at most 2 may"):
            await anext(engine.generate([1], greedy(3), "more"))
        assert engine.is_full
        gate.remove()
        await asyncio.gather(*tasks)
        assert not engine.is_full
        assert (await anext(engine.generate([1], greedy(1), "again"))).finished
        engine.shutdown(PATIENCE_S)

    run(main)
