# SPDX-License-Identifier: Apache-2.0
"""Who starts, in which order, and who has to wait for it."""

from __future__ import annotations

import pytest

from octavo.scheduler.reserve import ANSWERS_MIN
from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup
from schedkit import Rig, make_group


def started(rig: Rig, *groups: SequenceGroup) -> list[int]:
    """Indices of those that have ever run."""
    return [idx for idx, group in enumerate(groups) if group.first_scheduled_time is not None]


def test_short_prompts_do_not_wait_behind_a_long_one() -> None:
    """4,000 tokens and sixteen times 10 arrive together; a step computes 512."""
    rig = Rig(num_blocks=600, num_rows=32, max_num_batched_tokens=512, max_num_seqs=32)
    long = rig.add(4000)
    short = [rig.add(10, max_tokens=2) for _ in range(16)]
    rig.step()
    assert all(group.num_outputs == 1 for group in short)
    assert long.sequences[0].num_computed <= 160 // 2  # it adds half as much to the step at most
    rig.drain()


def test_a_long_prompt_begins_with_little_and_doubles() -> None:
    """So who comes a moment after it does not wait for a full step of it."""
    rig = Rig(num_blocks=600, max_num_batched_tokens=512)
    rig.add(2000, max_tokens=1)
    assert [rig.step().num_tokens for _ in range(7)] == [64, 64, 128, 256, 512, 512, 464]


def test_what_a_step_can_finish_is_finished_at_once() -> None:
    rig = Rig(num_blocks=600, max_num_batched_tokens=512)
    rig.add(512, max_tokens=1)
    assert rig.step().num_tokens == 512


def test_a_long_prompt_lets_others_pass_in_every_second_step_at_most() -> None:
    rig = Rig(num_blocks=600, num_rows=64, max_num_batched_tokens=512, max_num_seqs=64)
    long = rig.add(4000, max_tokens=1)
    chunks, before = [], 0
    for _ in range(12):
        rig.add(10, max_tokens=1)
        rig.step()
        before, chunk = long.sequences[0].num_computed, long.sequences[0].num_computed - before
        chunks.append(chunk)
    assert chunks[0::2] == [5] * 6  # half of ten
    assert chunks[1::2] == [64, 74, 153, 311, 502, 502]


def test_a_small_share_for_prompts_does_not_go_to_the_long_one_alone() -> None:
    """At a millisecond a prompt token the target leaves 16 of 64 a step, for whoever has come."""
    rig = Rig(num_blocks=200, max_num_batched_tokens=64, slo_itl_ms=16.5, prefix_caching=False)
    for count in range(40):
        rig.scheduler.pace.costs.observe(count, 0, count / 1000)
    long = rig.add(800)
    assert [rig.step().num_tokens for _ in range(2)] == [16, 16]
    short = [rig.add(10) for _ in range(8)]
    for _ in range(16):
        rig.step()
    assert all(group.num_outputs > 0 for group in short)
    assert 32 < long.sequences[0].num_computed <= 32 + 16 * 16 - 8 * 10
    rig.drain()


def test_prompts_that_share_a_step_get_equal_parts_of_what_is_left() -> None:
    rig = Rig(num_blocks=600, max_num_batched_tokens=120, long_prefill_token_threshold=1000)
    groups = [rig.add(size) for size in (300, 350, 400)]
    rig.step()
    assert [group.sequences[0].num_computed for group in groups] == [40, 40, 40]


def test_and_a_second_long_one_waits_for_the_first() -> None:
    rig = Rig(num_blocks=100, max_num_batched_tokens=32, max_long_partial_prefills=1)
    groups = [rig.add(100), rig.add(100), rig.add(3)]
    rig.step()
    assert started(rig, *groups) == [0, 2]
    rig.drain()


def test_who_fits_may_pass_who_does_not_and_not_for_ever() -> None:
    rig = Rig(num_blocks=8, max_num_seqs=4, max_overtakes=3, prefix_caching=False)
    first = rig.add(20, max_tokens=30)  # three blocks, seven in the end
    rig.step()
    big = rig.add(50)  # seven blocks
    small = [rig.add(4, max_tokens=2) for _ in range(6)]
    for _ in range(8):
        rig.step()
    assert started(rig, big, *small) == [1, 2, 3]
    assert big.num_overtakes == 3
    while not first.is_finished:
        rig.step()
    rig.step()
    assert started(rig, big) == [0]
    rig.drain()


@pytest.mark.parametrize(("steps_max", "num_passed"), [(3, 3), (0, 6)])
def test_nor_for_more_steps_than_the_bound(steps_max: int, num_passed: int) -> None:
    """One passes in every step; the head is first seen to be blocked in the second."""
    rig = Rig(
        num_blocks=8,
        max_num_seqs=8,
        max_overtakes=16,
        max_overtake_steps=steps_max,
        prefix_caching=False,
        admission_reserve="prompt",
    )
    rig.add(20, max_tokens=30)
    rig.step()
    big = rig.add(50)
    small = []
    for _ in range(6):
        small.append(rig.add(4, max_tokens=1))
        rig.step()
    assert len(started(rig, *small)) == num_passed
    assert big.first_scheduled_time is None
    rig.drain()
    assert (big.is_finished, big.overtaken_step) == (True, None)


class TestPromotedShare:
    def rig(self, share: float) -> tuple[Rig, SequenceGroup, SequenceGroup]:
        """A long prompt is being computed when another one is promoted. As both are cut short,
        each gets one token and its part of the other 62."""
        rig = Rig(
            num_blocks=200,
            max_num_batched_tokens=64,
            max_queue_wait_s=5.0,
            promoted_share=share,
            max_long_partial_prefills=2,
            prefix_caching=False,
        )
        first = rig.add(600, max_tokens=1)
        late = rig.add(300, max_tokens=1)
        rig.scheduler.waiting.remove(late)  # as the promotion does
        late.rank = (-1.0, *late.rank[1:])
        rig.scheduler.waiting.add(late)
        return rig, first, late

    @pytest.mark.parametrize(("share", "num_first"), [(0.0, 32), (0.25, 25), (0.75, 9)])
    def test_it_is_kept_for_them(self, share: float, num_first: int) -> None:
        rig, first, late = self.rig(share)
        rig.scheduler.waiting.remove(late)
        rig.step()
        rig.scheduler.waiting.add(late)
        before = first.sequences[0].num_computed
        rig.step()
        assert first.sequences[0].num_computed - before == num_first
        assert late.sequences[0].num_computed == 64 - num_first
        rig.drain()

    def test_what_they_leave_goes_to_the_others(self) -> None:
        rig = Rig(num_blocks=200, max_num_batched_tokens=64, promoted_share=0.5)
        rig.add(600, max_tokens=1)
        rig.step()
        late = rig.add(5, max_tokens=1)
        rig.scheduler.waiting.remove(late)
        late.rank = (-1.0, *late.rank[1:])
        rig.scheduler.waiting.add(late)
        plan = rig.step()
        assert late.is_finished
        assert plan.num_tokens > 5
        assert rig.step().num_tokens == 64  # nobody is promoted any more
        rig.drain()


def test_a_prefix_is_not_computed_twice() -> None:
    rig = Rig()
    prompt = list(range(100, 145))
    rig.add(prompt, max_tokens=2)
    rig.drain()
    second = rig.add([*prompt[:35], 7, 8], max_tokens=2)
    plan = rig.step()
    # Four full blocks are shared, three tokens of the fifth are copied, the last two computed.
    assert (plan.work[0].start, plan.num_tokens) == (35, 2)
    assert [copy.num_tokens for copy in plan.copies] == [3]
    assert second.num_cached_tokens == 35


def test_nor_by_requests_that_arrive_together() -> None:
    rig = Rig(max_num_batched_tokens=64)
    prompt = list(range(100))
    groups = [rig.add([*prompt, 200 + idx], max_tokens=3) for idx in range(4)]
    num_tokens = 0
    while not all(group.num_outputs for group in groups):
        num_tokens += rig.step().num_tokens
    assert num_tokens <= 101 + 3 * (101 - 96) + 8  # twelve blocks are shared; some decode
    rig.drain()


def test_but_a_short_common_beginning_is_not_waited_for() -> None:
    rig = Rig(max_num_batched_tokens=64)
    groups = [rig.add([1] * 8 + [200 + idx] * 20, max_tokens=3) for idx in range(2)]
    rig.step()
    assert all(group.num_outputs for group in groups)


def test_pinned_prefixes_go_before_a_request_would() -> None:
    rig = Rig(num_blocks=8)
    prompt = list(range(33))
    rig.add(prompt, max_tokens=1)
    rig.drain()
    assert rig.blocks.pin(rig.scheduler._planner.service.key(rig.add(1)), prompt) == 32
    rig.drain()
    assert rig.blocks.usage().num_pinned == 4
    large = rig.add(50, max_tokens=3)
    rig.drain()
    assert large.is_finished
    assert rig.blocks.usage().num_pinned == 0


def test_a_scored_prompt_is_computed_whole() -> None:
    rig = Rig()
    prompt = list(range(37))
    rig.add(prompt, max_tokens=2)
    rig.drain()
    rig.add(prompt, max_tokens=2, prompt_logprobs=0)
    assert rig.step().work[0].targets == tuple(prompt[1:])


@pytest.mark.parametrize("policy", ["sjf", "priority", "lpm"])
def test_whoever_has_waited_too_long_starts_next(policy: str) -> None:
    """Against an endless stream of requests that the policy prefers."""
    rig = Rig(scheduling_policy=policy, max_num_seqs=1, max_queue_wait_s=5.0)
    rig.add([7] * 9, max_tokens=1)
    rig.drain()
    unloved = rig.add(30, max_tokens=1, priority=1)
    while unloved.first_scheduled_time is None:
        rig.add([7] * 9, max_tokens=1)
        rig.now += 0.5
        rig.step()
    assert unloved.first_scheduled_time <= 5.0 + 2 * 0.5
    assert rig.scheduler.num_promotions >= 1


def test_without_promotion_the_stream_would_go_first_for_ever() -> None:
    rig = Rig(scheduling_policy="sjf", max_num_seqs=1, max_queue_wait_s=0)
    unloved = rig.add(30, max_tokens=1)
    for _ in range(100):
        rig.add(9, max_tokens=1)
        rig.now += 0.5
        rig.step()
    assert unloved.first_scheduled_time is None


class TestReserve:
    def run(self, mode: str) -> tuple[int, int]:
        """Preemptions, and steps to the end, of equal requests that all grow."""
        rig = Rig(
            num_blocks=16, prefix_caching=False, admission_reserve=mode, preemption_mode="recompute"
        )
        for _ in range(12):
            rig.add(8, max_tokens=33)
        rig.drain()
        return rig.scheduler.num_preemptions, rig.num_steps

    def test_full_never_preempts_and_prompt_does(self) -> None:
        assert self.run("full")[0] == 0
        assert self.run("prompt")[0] > 0

    def test_expected_learns_to_preempt_less(self) -> None:
        assert self.run("expected")[0] < self.run("prompt")[0]

    def test_expected_is_the_default(self) -> None:
        assert Rig().scheduler._planner.starter.reserve.mode == "expected"

    def test_each_class_has_its_own_mean_once_it_has_had_some_answers(self) -> None:
        reserve = Rig().scheduler._planner.starter.reserve
        by_class = {one: make_group(0, [1], service_class=one) for one in ServiceClass}
        assert reserve.num_outputs_expected(by_class[ServiceClass.BATCH]) == 0
        for _ in range(20):
            reserve.observe(by_class[ServiceClass.STANDARD], 100)
        for _ in range(ANSWERS_MIN - 1):
            reserve.observe(by_class[ServiceClass.INTERACTIVE], 10)
        overall = (20 * 100 + 7 * 10) // 27
        expected = {one: reserve.num_outputs_expected(group) for one, group in by_class.items()}
        assert expected == {
            ServiceClass.STANDARD: 100,
            ServiceClass.INTERACTIVE: overall,
            ServiceClass.BATCH: overall,
        }
        reserve.observe(by_class[ServiceClass.INTERACTIVE], 10)
        assert reserve.num_outputs_expected(by_class[ServiceClass.INTERACTIVE]) == 10

    def test_a_prompt_in_the_making_keeps_its_blocks(self) -> None:
        rig = Rig(num_blocks=6, max_num_batched_tokens=8, prefix_caching=False)
        rig.add(33, max_tokens=1)  # five blocks, one at a time
        rig.step()
        other = rig.add(15, max_tokens=1)  # two
        rig.step()
        assert other.first_scheduled_time is None
        rig.drain()
        assert rig.scheduler.num_preemptions == 0


class TestDelay:
    def rig(self, factor: float | str) -> Rig:
        rig = Rig(scheduler_delay_factor=factor)
        rig.add(4, max_tokens=60)
        rig.step()
        rig.scheduler.pace.delay.last_prefill_s = 0.5
        return rig

    @pytest.mark.parametrize(("factor", "wait_s"), [(1.0, 0.5), (3.0, 1.5)])
    def test_new_prompts_gather(self, factor: float, wait_s: float) -> None:
        rig = self.rig(factor)
        group = rig.add(4)
        rig.now = wait_s
        rig.step()
        assert group.first_scheduled_time is None
        rig.now = wait_s + 0.01
        rig.step()
        assert group.first_scheduled_time == rig.now

    def test_an_idle_engine_does_not_wait(self) -> None:
        rig = Rig(scheduler_delay_factor=100.0)
        rig.scheduler.pace.delay.last_prefill_s = 10.0
        group = rig.add(4)
        rig.step()
        assert group.first_scheduled_time == 0.0


class TestTimeouts:
    def test_each_limit_counts_until_it_is_met(self) -> None:
        rig = Rig(max_num_seqs=1)
        runs = rig.add(4, queue_timeout_s=1.0, ttft_timeout_s=2.0, timeout_s=3.0, max_tokens=50)
        waits = rig.add(4, queue_timeout_s=1.0)
        late = rig.add(4, ttft_timeout_s=2.0)
        rig.step()
        assert rig.scheduler.expire(0.9) == []
        assert rig.scheduler.expire(1.0) == [waits]
        assert rig.scheduler.expire(2.5) == [late]
        assert rig.scheduler.expire(3.0) == [runs]
        assert rig.scheduler.expire(9.0) == []
        assert len(rig.scheduler._deadlines) == 0
        named = [group.timed_out_by for group in (waits, late, runs)]
        assert named == ["queue_timeout_s", "ttft_timeout_s", "timeout_s"]

    def test_limits_of_ended_requests_do_not_pile_up(self) -> None:
        rig = Rig()
        for _ in range(1000):
            rig.add(1, timeout_s=1000.0, max_tokens=1)
            rig.step()
        assert len(rig.scheduler._deadlines) <= 64


def test_no_more_begin_than_may_be_active() -> None:
    rig = Rig(max_num_active_seqs=2)
    groups = [rig.add(4, max_tokens=4) for _ in range(4)]
    rig.step()
    assert started(rig, *groups) == [0, 1]
    assert rig.scheduler.blocked is None  # nobody holds what they wait for
    rig.drain()
    assert started(rig, *groups) == [0, 1, 2, 3]


def test_who_was_preempted_counts_as_active() -> None:
    rig = Rig(max_num_active_seqs=2, preemption_mode="recompute", high_watermark=0.0)
    first, second, third = (rig.add(4, max_tokens=12) for _ in range(3))
    rig.step()
    rig.scheduler.force_preempt(second)
    while not first.is_finished:
        rig.step()
        assert third.first_scheduled_time is None
    rig.drain()
    assert third.is_finished


def test_a_group_larger_than_the_limit_runs_alone() -> None:
    rig = Rig(max_num_active_seqs=2)
    rig.add(4)
    large = rig.add(4, num_samples=3)
    rig.drain()
    assert large.is_finished


def test_prompts_get_their_share_beside_decodes_and_all_of_it_alone() -> None:
    rig = Rig(num_blocks=64, max_num_batched_tokens=40, prefill_share=0.5, min_prefill_tokens=1)
    rig.add(40, max_tokens=30)
    assert rig.step().num_tokens == 40  # nobody decodes
    rig.add(100)
    assert rig.step().num_tokens == 1 + 20
    rig.drain()
