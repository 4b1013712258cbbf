# SPDX-License-Identifier: Apache-2.0
"""Random lives of requests in the scheduler, beside an oracle that knows no scheduler.

Run for a night with ``pytest --hypothesis-profile=nightly``.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase

from echo import PlanError
from octavo.cache.block_manager import BlockManager
from octavo.types.errors import CorruptState
from scheduler_machine import SchedulerMachine
from transitions import run_machine


def test_every_life_is_legal_and_every_answer_the_one_given_alone() -> None:
    run_machine(SchedulerMachine, 27_000)
    away = {"running to swapped", "running to preempted"}
    back = {"swapped to running", "preempted to running"}
    kinds = away | back | {"copied", "found in the cache", "lost with a step"}
    assert kinds <= SchedulerMachine.seen.keys(), "lives that never meet them prove little"


def test_a_planted_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished sequence that keeps its blocks."""
    monkeypatch.setattr(BlockManager, "free", lambda blocks, seq_id: None)
    with pytest.raises((AssertionError, CorruptState, PlanError)):
        run_machine(SchedulerMachine, 20_000, phases=[Phase.generate])
