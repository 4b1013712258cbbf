# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fakes import ManualClock
from octavo.engine.watchdog import Watchdog


def test_it_barks_after_work_without_progress_and_stops_with_progress() -> None:
    clock = ManualClock(100.0)
    dog = Watchdog(clock, 5.0)
    dog.has_work(True)
    clock.advance(5.0)
    assert (dog.is_stuck, dog.idle_s) == (False, 5.0)
    clock.advance(0.1)
    assert dog.is_stuck
    dog.progressed()
    assert (dog.is_stuck, dog.idle_s) == (False, 0.0)


def test_without_work_there_is_nothing_to_be_late_with() -> None:
    clock = ManualClock()
    dog = Watchdog(clock, 5.0)
    clock.advance(100.0)
    assert not dog.is_stuck
    dog.has_work(True)  # the time counts from here
    assert not dog.is_stuck
    clock.advance(6.0)
    assert dog.is_stuck
    dog.has_work(False)
    assert not dog.is_stuck


def test_zero_never_barks() -> None:
    clock = ManualClock()
    dog = Watchdog(clock, 0.0)
    dog.has_work(True)
    clock.advance(1e6)
    assert not dog.is_stuck
