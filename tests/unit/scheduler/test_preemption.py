# SPDX-License-Identifier: Apache-2.0
"""Who is preempted, how, and that nothing is lost."""

from __future__ import annotations

import pytest

from echo import expected_tokens
from octavo.types.errors import StepFailed
from octavo.types.outputs import FinishReason
from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup, SequenceStatus
from schedkit import Rig


def statuses(*groups: SequenceGroup) -> list[str]:
    return [group.sequences[0].status.value for group in groups]


def assert_answers(*groups: SequenceGroup) -> None:
    for group in groups:
        for seq in group.sequences:
            num_tokens = seq.num_tokens_max - seq.num_prompt
            prompt = seq.token_ids[: seq.num_prompt]
            assert seq.output_token_ids == expected_tokens(prompt, num_tokens, seq.sampling)


def full_rig(**config: object) -> tuple[Rig, list[SequenceGroup]]:
    """Three blocks, each the only one of its group; the first group is about to need another."""
    rig = Rig(num_blocks=3, prefix_caching=False, **config)
    groups = [rig.add(8, max_tokens=9), rig.add(6, max_tokens=9), rig.add(1, max_tokens=9)]
    rig.step()
    return rig, groups


def test_a_swapped_group_goes_on_where_it_stopped() -> None:
    rig, (old, young, least) = full_rig(preemption_mode="swap", num_swap_blocks=4)
    plan = rig.step()
    assert statuses(old, young, least) == ["running", "running", "swapped"]
    assert len(plan.swap_outs) == 1
    assert list(rig.scheduler.swapped) == [least]
    num_known = least.sequences[0].num_tokens
    resumed = None
    while resumed is None:
        plan = rig.step()
        resumed = plan if least.sequences[0].row is not None else None
    opened = next(item for item in resumed.opened if item.row == least.sequences[0].row)
    assert opened.num_computed == num_known - 1
    work = next(work for work in resumed.work if work.row == opened.row)
    assert (work.start, work.num_tokens, len(work.token_ids)) == (num_known - 1, 1, 1)
    rig.drain()
    assert_answers(old, young, least)
    assert rig.scheduler.preemptions.num_swaps > 0


def test_a_full_swap_pool_means_recompute() -> None:
    rig, groups = full_rig(preemption_mode="swap", num_swap_blocks=1)
    rig.drain()
    assert_answers(*groups)
    counts = rig.scheduler.preemptions
    assert counts.num_swaps > 0
    assert counts.num_swap_fallbacks == counts.num_recomputes > 0


@pytest.mark.parametrize(("num_samples", "status"), [(1, "preempted"), (2, "swapped")])
def test_legacy_swaps_several_sequences_and_recomputes_one(num_samples: int, status: str) -> None:
    rig = Rig(num_swap_blocks=8, preemption_mode="legacy")
    group = rig.add(9, num_samples=num_samples)
    rig.step()
    rig.scheduler.force_preempt(group)
    rig.scheduler.plan(0.0)
    assert group.num_preemptions == 1
    seen = rig.scheduler.preemptions
    assert (seen.num_swaps, seen.num_recomputes) == ((0, 1) if status == "preempted" else (1, 0))


@pytest.mark.parametrize(("swap_s", "prefill_s", "swaps"), [(1e-6, 1e-3, 1), (1.0, 1e-6, 0)])
def test_auto_takes_the_cheaper_way(swap_s: float, prefill_s: float, swaps: int) -> None:
    rig = Rig(num_swap_blocks=8, preemption_mode="auto")
    for num_tokens in range(1, 40):
        rig.scheduler.pace.costs.observe(num_tokens, 100, 0.001 + prefill_s * num_tokens)
    rig.scheduler.pace.costs.swap_s_per_block = swap_s
    group = rig.add(40)
    rig.step()
    rig.scheduler.force_preempt(group)
    rig.scheduler.plan(0.0)
    assert rig.scheduler.preemptions.num_swaps == swaps


def test_the_victim_loses_least_for_a_block() -> None:
    rig = Rig(num_blocks=9, prefix_caching=False, preemption_mode="recompute")
    old = rig.add(8)
    # Both hold four blocks; 25 tokens are less to compute again than 32.
    cheap, dear = rig.add(25), rig.add(31)
    rig.step()
    rig.step()
    assert statuses(old, cheap, dear) == ["running", "preempted", "running"]


def test_who_frees_nothing_is_no_victim() -> None:
    rig = Rig(num_blocks=5)
    prompt = list(range(17))
    rig.add([*prompt[:16], 99], max_tokens=2)
    rig.drain()
    # Two cached blocks and a copied one for each of two; no free block is left.
    first, second = rig.add(prompt, max_tokens=20), rig.add(prompt, max_tokens=4)
    rig.step()
    held = [seq.seq_id for group in (first, second) for seq in group.sequences]
    assert [rig.blocks.num_exclusive_blocks([seq_id]) for seq_id in held] == [1, 1]
    rig.drain()
    assert_answers(first, second)


def test_the_often_preempted_are_spared() -> None:
    rig = Rig(num_blocks=3, prefix_caching=False, max_preemptions=1)
    groups = [rig.add(8, max_tokens=9), rig.add(6, max_tokens=4), rig.add(1, max_tokens=9)]
    groups[2].num_preemptions = 1
    rig.step()
    rig.step()
    assert statuses(*groups) == ["running", "preempted", "running"]


def test_lost_transfers_cost_a_recompute_and_nobody_his_answer() -> None:
    rig, groups = full_rig(preemption_mode="swap", num_swap_blocks=4)
    rig.executor.fail_steps.add(2)
    rig.plan()
    assert statuses(groups[2]) == ["swapped"]
    with pytest.raises(StepFailed):
        rig.executor.collect()
    lost = rig.scheduler.fail_step()
    assert {seq.group for seq in lost} == {groups[1]}  # the first was still waiting for the block
    assert groups[2].sequences[0].status is SequenceStatus.PREEMPTED
    for seq in lost:
        rig.scheduler.finish(seq, FinishReason.ERROR, None)
    rig.drain()
    assert_answers(groups[0], groups[2])


def test_who_came_back_before_the_failure_was_known_computes_again() -> None:
    """The step that moves a group out fails when the next, which brings it back, is on its way."""
    rig = Rig(num_swap_blocks=8, preemption_mode="swap", depth=2)
    group = rig.add(12, max_tokens=6)
    rig.step()
    rig.scheduler.force_preempt(group)
    rig.executor.fail_steps.add(2)
    assert rig.plan().swap_outs
    assert rig.plan().swap_ins
    with pytest.raises(StepFailed):
        rig.executor.collect()
    assert rig.scheduler.fail_step() == []
    assert rig.commit() == []  # what the third step has read is rubbish
    rig.drain()
    assert_answers(group)


def test_who_was_promoted_starts_in_peace() -> None:
    rig = Rig(num_blocks=3, prefix_caching=False, preemption_mode="recompute")
    groups = [rig.add(8, max_tokens=9), rig.add(6, max_tokens=4), rig.add(1, max_tokens=9)]
    for group in groups:  # all have waited too long; the last one's loss would be least
        rig.scheduler.waiting.remove(group)
        group.rank = (-1.0, *group.rank[1:])
        rig.scheduler.waiting.add(group)
    rig.step()
    assert all(rig.scheduler._preemptor.is_spared(group) for group in groups)
    rig.drain()
    assert_answers(*groups)


class TestUrgency:
    def test_an_interactive_request_displaces_a_batch_one(self) -> None:
        rig = Rig(max_num_seqs=2)
        batch = [rig.add(4, max_tokens=50, service_class=ServiceClass.BATCH) for _ in range(2)]
        rig.step()
        urgent = rig.add(4, service_class=ServiceClass.INTERACTIVE)
        rig.step()  # finds no seat
        rig.step()
        assert urgent.sequences[0].status is SequenceStatus.RUNNING
        assert sum(group.num_preemptions for group in batch) == 1
        rig.drain()
        assert_answers(urgent, *batch)

    def test_and_not_one_of_its_own_class(self) -> None:
        rig = Rig(max_num_seqs=1)
        first = rig.add(4, max_tokens=20)
        rig.step()
        rig.add(4)
        for _ in range(5):
            rig.step()
        assert first.num_preemptions == 0

    def test_who_is_spared_inherits_the_class_of_whom_it_holds_up(self) -> None:
        rig = Rig(max_num_seqs=1, max_preemptions=1)
        batch = rig.add(4, max_tokens=20, service_class=ServiceClass.BATCH)
        batch.num_preemptions = 1
        rig.step()
        rig.add(4, service_class=ServiceClass.INTERACTIVE)
        rig.step()
        rig.step()
        assert (batch.rank[0], batch.num_preemptions) == (0.0, 1)
        rig.drain()
        assert_answers(batch)

    def test_who_computes_the_prefix_of_an_urgent_one_inherits_its_class(self) -> None:
        rig = Rig(max_num_batched_tokens=8, max_long_partial_prefills=2)
        prompt = list(range(100, 164))
        batch = rig.add(prompt, service_class=ServiceClass.BATCH)
        rig.step()
        urgent = rig.add([*prompt, 7], service_class=ServiceClass.INTERACTIVE)
        rig.step()
        assert urgent.first_scheduled_time is None
        assert batch.rank[0] == 0.0
        rig.drain()
        assert_answers(urgent, batch)
        assert urgent.num_cached_tokens >= 56


class TestPriorityGap:
    def rig(self, **config: object) -> tuple[Rig, SequenceGroup]:
        """One seat, taken by somebody of priority 10."""
        rig = Rig(max_num_seqs=1, scheduling_policy="priority", **config)
        idler = rig.add(4, max_tokens=20, priority=10)
        rig.step()
        return rig, idler

    @pytest.mark.parametrize(
        ("priority", "config", "num_preemptions"),
        [
            (0, {}, 1),
            (1, {}, 0),  # ahead by nine, and ten are wanted
            (1, {"priority_preemption_gap": 9}, 1),
            (-(2**63), {"priority_preemption_gap": 0}, 0),
            (0, {"priority_preemption": False}, 0),
        ],
    )
    def test_who_is_ahead_by_so_much_takes_the_place(
        self, priority: int, config: dict[str, object], num_preemptions: int
    ) -> None:
        rig, idler = self.rig(**config)
        urgent = rig.add(4, priority=priority)
        for _ in range(3):
            rig.step()
        assert idler.num_preemptions == num_preemptions
        assert (urgent.first_scheduled_time is not None) == (num_preemptions == 1)
        rig.drain()
        assert_answers(urgent, idler)

    def test_no_other_policy_looks_at_it(self) -> None:
        rig = Rig(max_num_seqs=1, scheduling_policy="weighted")
        idler = rig.add(4, max_tokens=20, priority=100)
        rig.step()
        rig.add(4)
        for _ in range(3):
            rig.step()
        assert idler.num_preemptions == 0

    def test_nor_does_it_count_between_classes(self) -> None:
        rig, idler = self.rig()
        rig.add(4, priority=-100, service_class=ServiceClass.BATCH)
        for _ in range(3):
            rig.step()
        assert idler.num_preemptions == 0

    def test_who_is_spared_inherits_the_priority(self) -> None:
        rig, idler = self.rig(max_preemptions=1)
        idler.num_preemptions = 1
        urgent = rig.add(4, priority=-5)
        rig.step()
        rig.step()
        assert idler.rank[:2] == (1.0, -5.0)
        rig.drain()
        assert_answers(urgent, idler)

    def test_a_plain_queue_under_pressure_lets_them_in(self) -> None:
        """Blocks are short and the high mark is not reached."""
        rig = Rig(
            num_blocks=8, scheduling_policy="priority", prefix_caching=False, high_watermark=0.5
        )
        idlers = [rig.add(20, max_tokens=12, priority=10) for _ in range(2)]
        rig.step()
        rig.scheduler._planner._pressure.rise()
        same, urgent = rig.add(4, priority=9), rig.add(4, priority=0)
        rig.step()
        assert same.first_scheduled_time is None
        assert urgent.first_scheduled_time is not None
        rig.drain()
        assert_answers(same, urgent, *idlers)


class TestPreemptAll:
    @pytest.mark.parametrize("depth", [1, 2])
    def test_everybody_begins_anew_and_no_answer_changes(self, depth: int) -> None:
        rig = Rig(num_blocks=12, num_swap_blocks=8, preemption_mode="swap", depth=depth)
        groups = [rig.add(10, max_tokens=12), rig.add(20, num_samples=2), rig.add(4)]
        rig.step()
        rig.scheduler.force_preempt(groups[2])
        rig.step()
        rig.plan()
        rig.scheduler.preempt_all()
        rig.scheduler.check()
        assert not rig.scheduler.running
        assert not rig.scheduler.swapped
        assert rig.blocks.usage().num_referenced == 0
        rig.blocks.reset_prefix_cache()
        assert rig.commit() == []  # what was in flight is stale
        assert rig.blocks.usage().num_free == 12
        rig.drain()
        assert_answers(*groups)

    def test_nobody_is_spared_for_it(self) -> None:
        rig = Rig(max_preemptions=1)
        group = rig.add(10)
        rig.step()
        rig.scheduler.preempt_all()
        assert (group.num_preemptions, rig.scheduler.preemptions.num_recomputes) == (0, 1)

    def test_kept_parts_go_too(self) -> None:
        rig = Rig(num_blocks=4, prefix_caching=False, preemption_mode="recompute")
        groups = [rig.add(8, max_tokens=12), rig.add(22, max_tokens=3)]
        rig.step()
        rig.step()
        assert groups[1].sequences[0].num_kept > 0
        rig.scheduler.preempt_all()
        assert rig.blocks.usage().num_referenced == 0
        rig.drain()
        assert_answers(*groups)
