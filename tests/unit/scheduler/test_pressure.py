# SPDX-License-Identifier: Apache-2.0
"""Two marks: who starts leaves the low one, and after a shortage waits for the high one."""

from __future__ import annotations

import random

from octavo.types.request import ServiceClass
from schedkit import Rig


def make_rig(high: float, **config: object) -> Rig:
    return Rig(
        num_blocks=12,
        prefix_caching=False,
        preemption_mode="recompute",
        partial_preemption=False,
        high_watermark=high,
        **config,
    )


def test_after_a_shortage_nobody_starts_below_the_high_mark() -> None:
    rig = make_rig(high=0.5)
    rig.add(55, max_tokens=20)
    rig.add(36, max_tokens=12)
    rig.step()
    for _ in range(20):
        rig.step()
        if rig.scheduler.num_preemptions:
            break
    assert rig.scheduler.num_preemptions == 1
    small = rig.add(3, max_tokens=2)
    rig.step()
    assert rig.blocks.num_available >= 1  # it would fit
    assert small.first_scheduled_time is None
    assert rig.scheduler.blocked is not None
    urgent = rig.add(3, max_tokens=2, service_class=ServiceClass.INTERACTIVE)
    rig.step()
    assert urgent.first_scheduled_time is not None  # it could take the blocks of those who run
    rig.drain()


def test_without_a_shortage_there_is_no_high_mark() -> None:
    rig = make_rig(high=0.5)
    rig.add(55, max_tokens=4)
    small = rig.add(15, max_tokens=2)
    rig.step()
    assert small.first_scheduled_time is not None
    rig.drain()


def test_an_engine_that_runs_nobody_starts_somebody() -> None:
    rig = make_rig(high=0.5)
    groups = [rig.add(60, max_tokens=30), rig.add(30, max_tokens=30)]
    rig.drain()
    assert all(group.is_finished for group in groups)


def num_preemptions(high: float, seed: int) -> int:
    rng = random.Random(seed)
    rig = make_rig(high, admission_reserve="none")
    for _ in range(20):
        rig.add(rng.randint(1, 40), max_tokens=rng.randint(5, 40))
    rig.drain()
    return rig.scheduler.num_preemptions


def test_the_gap_between_the_marks_saves_preemptions() -> None:
    without = sum(num_preemptions(0.0, seed) for seed in range(5))
    with_gap = sum(num_preemptions(0.3, seed) for seed in range(5))
    assert with_gap < without
