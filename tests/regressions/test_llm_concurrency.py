# SPDX-License-Identifier: Apache-2.0
"""An ``LLM`` whose owner does things at bad moments: drops a stream in the midst of a step, closes
it under other threads, forks."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from llmkit import make_llm
from octavo.types.errors import EngineStopped
from octavo.types.sampling_params import SamplingParams

PARAMS = SamplingParams(temperature=0, max_tokens=20)


class Cycle:
    """Only the garbage collector can free what this holds."""

    def __init__(self, held: object) -> None:
        self.held = (self, held)


@pytest.mark.parametrize("is_started", [True, False])
def test_a_stream_that_is_collected_within_a_step_ends(is_started: bool) -> None:
    due: list[str] = []  # collections to make: one is slow where many objects live

    def collect_once() -> None:
        if due:
            due.pop()
            gc.collect()

    llm, assembled = make_llm(gate=collect_once)
    done: list[str] = []

    def work() -> None:
        stream = llm.stream("hello", PARAMS)
        if is_started:
            next(stream)
        Cycle(stream)
        del stream
        due.append("once")
        done.append(llm.generate("a", PARAMS)[0].outputs[0].text)

    gc.disable()  # so that it is the gate, within a step, that collects
    try:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(30)
    finally:
        gc.enable()
    assert done, "the thread waits for a lock that it holds"
    assert not due, "no step has collected anything"
    assert not assembled.engine.has_unfinished()
    assembled.engine.check()


def test_closing_under_other_threads_is_an_engine_that_stopped() -> None:
    running = threading.Event()
    llm, _ = make_llm(gate=running.set)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                llm.generate(["a"] * 3, PARAMS)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert running.wait(10)
    llm.close()
    for thread in threads:
        thread.join(10)
    assert [type(error) for error in failures] == [EngineStopped] * 3, failures


def test_a_forked_copy_says_that_it_cannot_run() -> None:
    llm, _ = make_llm()
    child = os.fork()
    if child == 0:  # no pytest in here: report by exit status
        try:
            llm.generate("a", PARAMS)
        except EngineStopped:
            os._exit(7)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert llm.generate("a", PARAMS)[0].finished
