# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal
import threading

import pytest

from octavo.llm.interrupts import interrupts_deferred


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def interrupted(times: int, log: list[str]) -> None:
    with interrupts_deferred():
        for _ in range(times):
            interrupt()
            log.append("went on")


def test_ctrl_c_waits_for_the_end_of_the_block():
    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(1, log)
    assert log == ["went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait():
    log: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(2, log)
    assert log == ["went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_in_the_block_wins_and_the_handler_comes_back():
    with pytest.raises(ValueError, match="mine"), interrupts_deferred():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_programs_own_handler_is_left_alone():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with interrupts_deferred():
            interrupt()
            assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_pass_through():
    done = []

    def work() -> None:
        with interrupts_deferred():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]
