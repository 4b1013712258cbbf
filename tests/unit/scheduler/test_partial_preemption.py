# SPDX-License-Identifier: Apache-2.0
"""A victim gives up the end of what it has, keeps the rest, and computes only the end again."""

from __future__ import annotations

import random

import pytest

from echo import expected_tokens
from octavo.types.errors import StepFailed
from octavo.types.outputs import FinishReason
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from schedkit import BLOCK_SIZE, Rig


def assert_answers(*groups: SequenceGroup) -> None:
    for group in groups:
        for seq in group.sequences:
            num_tokens = seq.num_tokens_max - seq.num_prompt
            prompt = seq.token_ids[: seq.num_prompt]
            assert seq.output_token_ids == expected_tokens(prompt, num_tokens, seq.sampling)


def make_rig(**config: object) -> Rig:
    chosen = {"num_blocks": 8, "prefix_caching": False, "preemption_mode": "recompute"}
    return Rig(**(chosen | config))  # type: ignore[arg-type]


def start_two(rig: Rig, *, num_victim: int = 39) -> tuple[SequenceGroup, Sequence]:
    """The first group holds three full blocks; the second has the other five and is cut next."""
    first = rig.add(24, max_tokens=9)
    victim = rig.add(num_victim, max_tokens=9)
    rig.step()
    assert rig.blocks.num_available == 0
    return first, victim.sequences[0]


def test_only_the_tail_goes_and_only_it_is_computed_again() -> None:
    rig = make_rig()
    first, victim = start_two(rig)
    rig.step()
    assert (victim.status, victim.num_kept) == (SequenceStatus.PREEMPTED, 4 * BLOCK_SIZE)
    table = rig.blocks.table(victim.seq_id)
    assert table is not None
    assert len(table.ids) == 4
    while victim.row is None:
        plan = rig.step()
    opened = next(item for item in plan.opened if item.row == victim.row)
    assert opened.num_computed == 4 * BLOCK_SIZE
    work = next(work for work in plan.work if work.row == victim.row)
    assert work.start == 4 * BLOCK_SIZE
    rig.drain()
    counts = rig.scheduler.preemptions
    assert (counts.num_partials, counts.num_lost_tokens) == (1, 7)
    assert_answers(first, victim.group)


def test_without_it_all_of_it_goes() -> None:
    rig = make_rig(partial_preemption=False)
    first, victim = start_two(rig)
    rig.step()
    assert victim.num_kept == 0
    assert rig.blocks.table(victim.seq_id) is None
    rig.drain()
    assert rig.scheduler.preemptions.num_lost_tokens >= 39
    assert_answers(first, victim.group)


def test_what_waits_is_cut_further_before_anybody_who_runs() -> None:
    rig = make_rig(num_blocks=9)
    first = rig.add(24, max_tokens=20)
    other = rig.add(7, max_tokens=20)
    victim = rig.add(39, max_tokens=9).sequences[0]
    kept = set()
    for _ in range(12):  # one begins a block in steps 2 and 10, the other in 3 and 11
        rig.step()
        kept.add(victim.num_kept)
    assert kept == {num_blocks * BLOCK_SIZE for num_blocks in (0, 4, 3, 2, 1)}
    assert (other.num_preemptions, victim.group.num_preemptions) == (0, 1)
    rig.drain()
    assert_answers(first, other, victim.group)


def test_a_kept_part_stands_in_nobodys_way() -> None:
    """The first in line needs the whole pool, and somebody behind it keeps a part of it."""
    rig = make_rig(high_watermark=0.0)
    first, victim = start_two(rig)
    rig.step()
    assert victim.num_kept > 0
    rig.scheduler.finish(first.sequences[0], FinishReason.ABORT, None)
    large = rig.add(60, max_tokens=3)
    rig.scheduler.waiting.remove(large)
    large.rank = (-1.0, *large.rank[1:])  # as if it had waited too long
    rig.scheduler.waiting.add(large)
    rig.drain()
    assert_answers(large, victim.group)


def test_what_ends_while_it_waits_gives_its_part_back() -> None:
    rig = make_rig()
    _, victim = start_two(rig)
    rig.step()
    assert victim.num_kept > 0
    rig.scheduler.finish(victim, FinishReason.ABORT, None)
    assert victim.num_kept == 0
    rig.scheduler.check()
    rig.drain()


def test_what_the_cache_has_of_the_tail_is_not_computed_again() -> None:
    rig = make_rig(prefix_caching=True, num_blocks=9)
    first, victim = start_two(rig, num_victim=47)
    rig.step()
    assert victim.num_kept == 5 * BLOCK_SIZE
    rig.scheduler.finish(first.sequences[0], FinishReason.ABORT, None)
    plan = rig.step()
    assert [opened.num_computed for opened in plan.opened] == [5 * BLOCK_SIZE]
    rig.drain()
    assert_answers(victim.group)


def test_the_cheaper_of_a_cut_and_a_swap_is_taken() -> None:
    for swap_s, partials in ((1e-9, 0), (1.0, 1)):
        rig = make_rig(preemption_mode="auto", num_swap_blocks=8)
        for num_tokens in range(1, 40):
            rig.scheduler.pace.costs.observe(num_tokens, 100, 0.001 + 1e-3 * num_tokens)
        rig.scheduler.pace.costs.swap_s_per_block = swap_s
        start_two(rig)
        rig.plan()
        counts = rig.scheduler.preemptions
        assert (counts.num_partials, counts.num_swaps) == (partials, 1 - partials)
        rig.commit()
        rig.drain()


def test_swapping_all_may_cost_more_than_a_tail_and_less_than_everything() -> None:
    """Five blocks out and in cost 20 tokens' time: more than a tail of 7, less than all 39."""
    for chosen, swaps in ((True, 0), (False, 1)):
        rig = make_rig(preemption_mode="auto", num_swap_blocks=8, partial_preemption=chosen)
        for num_tokens in range(1, 40):
            rig.scheduler.pace.costs.observe(num_tokens, 100, 0.001 + 1e-3 * num_tokens)
        rig.scheduler.pace.costs.swap_s_per_block = 2e-3
        start_two(rig)
        rig.plan()
        assert rig.scheduler.preemptions.num_swaps == swaps


def test_what_a_step_in_flight_may_still_spoil_is_not_kept() -> None:
    """The victim has been swapped in by a step that fails later: nothing of it can be kept."""
    rig = make_rig(num_blocks=12, num_swap_blocks=8, depth=2, preemption_mode="swap")
    first = rig.add(24, max_tokens=3)
    victim = rig.add(30, max_tokens=4).sequences[0]
    rig.step()
    rig.scheduler.force_preempt(victim.group)
    rig.step()
    assert victim.status is SequenceStatus.SWAPPED
    rig.executor.fail_steps.add(3)
    assert rig.plan().swap_ins
    assert rig.blocks.num_tokens_to_keep(victim.seq_id, 1, victim.num_computed) == 0
    with pytest.raises(StepFailed):
        rig.executor.collect()
    for seq in rig.scheduler.fail_step():
        rig.scheduler.finish(seq, FinishReason.ERROR, None)
    rig.drain()
    assert first.is_finished


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_many_that_want_more_than_there_is_all_end(seed: int, depth: int) -> None:
    """No livelock: within few steps for each token, for any lengths in a pool that holds one."""
    rng = random.Random(seed)
    rig = make_rig(num_blocks=10, depth=depth, admission_reserve="none", high_watermark=0.0)
    groups = []
    for _ in range(12):
        length = rng.randint(1, 50)
        groups.append(rig.add(length, max_tokens=rng.randint(1, 79 - length)))
    num_tokens = sum(group.request.num_tokens_max for group in groups)
    steps = 0
    while rig.scheduler.has_groups:
        while rig.scheduler.num_inflight < depth:
            plan = rig.scheduler.plan(0.0)
            if plan is None:
                break
            rig.executor.submit(plan)
        rig.commit()
        steps += 1
        assert steps < 4 * num_tokens
    assert_answers(*groups)
    assert rig.scheduler.preemptions.num_partials > 0
