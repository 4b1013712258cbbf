# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import count

import pytest

from octavo.cache.block_manager import BlockManager, CacheKey
from octavo.scheduler.scheduler import Scheduler
from octavo.types.config import SchedulerConfig
from octavo.types.errors import CorruptState
from octavo.types.outputs import FinishReason
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import RowOpen, RowResult, RowSampling, RowWork, StepPlan, StepResult

BLOCK_SIZE = 8


class Bench:
    """A scheduler, and a worker that answers every sample with token 100 + position."""

    def __init__(
        self,
        *,
        num_blocks: int = 16,
        num_rows: int = 8,
        max_num_seqs: int = 8,
        budget: int = 16,
        num_swap_blocks: int = 0,
        prefix_caching: bool = False,
        **config: object,
    ) -> None:
        self.blocks = BlockManager(
            num_blocks,
            BLOCK_SIZE,
            num_swap_blocks=num_swap_blocks,
            prefix_caching=prefix_caching,
            watermark=0.0,
        )
        self.scheduler = Scheduler(
            self.blocks,
            SchedulerConfig(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=budget,
                **config,  # type: ignore[arg-type]
            ),
            num_rows=num_rows,
        )
        self.now = 0.0
        self._ids = count()

    def add(self, prompt_len: int, max_tokens: int = 50, **params: object) -> Sequence:
        seq_id = next(self._ids)
        request = Request(
            request_id=str(seq_id),
            prompt=None,
            prompt_token_ids=tuple(range(prompt_len)),
            params=SamplingParams(**params),  # type: ignore[arg-type]
            max_tokens=max_tokens,
            eos_token_id=None,
            stop_token_ids=frozenset(),
        )
        group = SequenceGroup(request, arrival_time=0.0, seniority=seq_id)
        group.sequences.append(Sequence(seq_id, group, RowSampling(seed=seq_id)))
        self.scheduler.add(group)
        return group.sequences[0]

    def plan(self) -> StepPlan:
        plan = self.scheduler.plan(now=self.now)
        assert plan is not None
        self.scheduler.check()
        return plan

    def answer(self, plan: StepPlan) -> StepResult:
        def row(work: RowWork) -> RowResult:
            token_id = 100 + work.start + work.num_tokens if work.samples else None
            return RowResult(work.row, token_id)

        return StepResult(plan.step_id, tuple(map(row, plan.work)))

    def step(self) -> StepPlan:
        plan = self.plan()
        self.scheduler.commit(self.answer(plan))
        self.scheduler.check()
        return plan


def test_nothing_to_do_is_no_plan() -> None:
    assert Bench().scheduler.plan(now=0.0) is None


def test_a_prompt_is_computed_and_then_one_token_a_step() -> None:
    bench = Bench()
    seq = bench.add(3)
    assert bench.step() == StepPlan(
        1,
        opened=(RowOpen(0, RowSampling(seed=0), 0, (0,)),),
        work=(RowWork(0, 0, 3, (0, 1, 2), (), True),),
    )
    assert (seq.status, seq.num_computed, seq.token_ids) == (
        SequenceStatus.RUNNING,
        3,
        [0, 1, 2, 103],
    )
    assert bench.step() == StepPlan(2, work=(RowWork(0, 3, 1, (), (), True),))
    assert seq.output_token_ids == [103, 104]


def test_a_long_prompt_goes_in_chunks_and_only_the_last_samples() -> None:
    bench = Bench(budget=16)
    seq = bench.add(35)
    works = [bench.step().work[0] for _ in range(4)]
    assert [(work.start, work.num_tokens, work.samples) for work in works] == [
        (0, 16, False),
        (16, 16, False),
        (32, 3, True),
        (35, 1, True),
    ]
    assert [len(work.new_blocks) for work in works] == [
        0,
        2,
        1,
        0,
    ]  # the first two come with the row
    assert seq.num_outputs == 2


def test_decodes_come_first_and_a_prefill_gets_what_is_left() -> None:
    bench = Bench(budget=10)
    bench.add(4)
    bench.step()
    bench.add(30)
    plan = bench.step()
    assert [(work.row, work.num_tokens) for work in plan.work] == [(0, 1), (1, 9)]
    assert plan.num_tokens == 10
    bench.add(5)  # and a short one passes: the long one gets half as much as all else
    assert [(work.row, work.num_tokens) for work in bench.step().work] == [(0, 1), (1, 3), (2, 5)]


def test_the_last_token_of_a_one_token_prompt_is_spelt_out() -> None:
    bench = Bench()
    bench.add(1)
    assert bench.step().work == (RowWork(0, 0, 1, (0,), (), True),)
    assert bench.step().work == (RowWork(0, 1, 1, (), (), True),)


@pytest.mark.parametrize(("num_rows", "max_num_seqs"), [(2, 8), (8, 2)])
def test_no_more_run_than_rows_and_limit_allow(num_rows: int, max_num_seqs: int) -> None:
    bench = Bench(num_rows=num_rows, max_num_seqs=max_num_seqs)
    for _ in range(3):
        bench.add(2)
    assert len(bench.step().work) == 2
    assert len(bench.scheduler.waiting) == 1


@pytest.mark.parametrize("limits", [{"lookahead_window": 0}, {"max_overtakes": 0}])
def test_the_oldest_waits_for_memory_and_nobody_overtakes_it(limits: dict[str, int]) -> None:
    bench = Bench(num_blocks=4, budget=32, **limits)
    bench.add(17)
    bench.step()
    big, small = bench.add(9), bench.add(1)
    bench.step()
    assert [group.sequences[0] for group in bench.scheduler.waiting] == [big, small]


def test_a_group_starts_only_when_its_whole_prompt_fits() -> None:
    bench = Bench(num_blocks=4, budget=8)
    bench.add(8)
    bench.step()
    bench.add(25)  # a first chunk of 7 would fit, all 4 blocks do not
    assert len(bench.step().work) == 1


class TestPreemption:
    def test_full_pool_preempts_the_youngest_and_admits_nobody_that_step(self) -> None:
        bench = Bench(num_blocks=3, budget=32)
        old, young, later = bench.add(8), bench.add(7), bench.add(1)
        first = bench.step()
        assert [work.row for work in first.work] == [0, 1, 2]
        # Each holds one block, all three are taken; old needs its second.
        plan = bench.step()
        assert [(work.row, work.start) for work in plan.work] == [(0, 8), (1, 7)]
        assert plan.closed == (2,)
        assert later.status is SequenceStatus.PREEMPTED
        assert (later.num_computed, later.num_planned, later.row) == (0, 0, None)
        assert later.token_ids == [0, 101]  # what was sampled stays
        assert list(bench.scheduler.waiting) == [later.group]
        assert (old.num_computed, young.num_computed) == (9, 8)

    def test_the_preempted_come_back_before_those_who_never_ran(self) -> None:
        bench = Bench(num_blocks=3, budget=32, max_num_seqs=3)
        seqs = [bench.add(8), bench.add(8), bench.add(1), bench.add(1)]
        bench.step()
        bench.step()  # seq 0 grows: seq 2 goes; seq 1 grows: it is the youngest itself, and goes
        assert [group.sequences[0] for group in bench.scheduler.waiting] == seqs[1:]
        assert bench.scheduler.num_preemptions == 2

    def test_the_preempted_compute_their_answers_again_and_sample_none_twice(self) -> None:
        bench = Bench(num_blocks=3, budget=32)
        old, young = bench.add(16, max_tokens=9), bench.add(6)
        for _ in range(2):
            bench.step()
        while old.num_outputs < 1 or young.status is not SequenceStatus.PREEMPTED:
            bench.step()
        known = list(young.token_ids)
        bench.scheduler.finish(old, FinishReason.ABORT, None)
        plan = bench.step()
        (work,) = plan.work
        assert plan.opened == (RowOpen(work.row, RowSampling(seed=young.seq_id), 0, (0,)),)
        assert (work.start, work.token_ids, work.samples) == (0, tuple(known), True)
        assert young.token_ids == [*known, 100 + len(known)]
        assert young.group.num_preemptions == 1

    def test_who_never_fits_beside_others_still_finishes_alone(self) -> None:
        bench = Bench(num_blocks=2, budget=4)
        seqs = [bench.add(3, max_tokens=12) for _ in range(4)]
        for _ in range(200):
            if not bench.scheduler.has_groups:
                break
            bench.step()
            for seq in seqs:
                if not seq.is_finished and seq.num_tokens == seq.num_tokens_max:
                    bench.scheduler.finish(seq, FinishReason.LENGTH, None)
        assert [seq.output_token_ids for seq in seqs] == [list(range(103, 115))] * 4


class TestInFlight:
    def test_a_decode_is_planned_before_its_token_is_known(self) -> None:
        bench = Bench()
        seq = bench.add(3)
        first, second = bench.plan(), bench.plan()
        assert second.work == (RowWork(0, 3, 1, (), (), True),)
        assert (seq.num_computed, seq.num_planned, seq.num_expected) == (0, 4, 5)
        bench.scheduler.commit(bench.answer(first))
        assert (seq.num_computed, seq.token_ids[3:]) == (3, [103])
        bench.scheduler.commit(bench.answer(second))
        assert (seq.num_computed, seq.token_ids[3:]) == (4, [103, 104])

    def test_no_token_is_planned_beyond_the_length_limit(self) -> None:
        bench = Bench()
        bench.add(3, max_tokens=2)
        bench.plan()
        bench.plan()
        assert bench.scheduler.plan(now=0.0) is None

    def test_results_of_a_finished_sequence_are_dropped_and_its_blocks_are_fenced(self) -> None:
        bench = Bench(num_blocks=1)
        seq = bench.add(3)
        first, second = bench.plan(), bench.plan()
        bench.scheduler.commit(bench.answer(first))
        bench.scheduler.finish(seq, FinishReason.STOP, None)
        waiting = bench.add(2)
        assert bench.scheduler.plan(now=0.0) is None  # the one block may still be written
        assert bench.scheduler.commit(bench.answer(second)) == []
        assert seq.output_token_ids == [103]
        plan = bench.plan()
        assert (plan.closed, plan.opened[0].blocks) == ((0,), (0,))
        assert waiting.status is SequenceStatus.RUNNING

    def test_blocks_in_limbo_count_as_arriving_so_nobody_is_preempted(self) -> None:
        bench = Bench(num_blocks=3, budget=24)
        old, young, ended = bench.add(8), bench.add(2), bench.add(1)
        bench.step()
        flight = bench.plan()  # old needs its second block: ended is preempted for it
        assert ended.status is SequenceStatus.PREEMPTED
        bench.scheduler.finish(ended, FinishReason.ABORT, None)
        assert old.status is young.status is SequenceStatus.RUNNING
        bench.scheduler.commit(bench.answer(flight))
        assert bench.scheduler.num_preemptions == 1

    def test_a_group_waits_for_limbo_rather_than_preempt(self) -> None:
        bench = Bench(num_blocks=3, budget=24)
        old, young, ended = bench.add(7), bench.add(2), bench.add(1)
        bench.step()
        flight = bench.plan()
        bench.scheduler.finish(ended, FinishReason.ABORT, None)
        assert bench.blocks.usage().num_limbo == 1
        second = bench.plan()  # old is at a block boundary; its block arrives with the next result
        assert [work.row for work in second.work] == [1]
        bench.scheduler.commit(bench.answer(flight))
        bench.scheduler.commit(bench.answer(second))
        assert [work.row for work in bench.step().work] == [0, 1]
        assert (bench.scheduler.num_preemptions, old.num_computed, young.num_computed) == (0, 9, 5)

    def test_nobody_is_admitted_to_the_blocks_that_a_running_group_waits_for(self) -> None:
        bench = Bench(num_blocks=8, budget=16, max_num_partial_prefills=1)
        ended, long = bench.add(8), bench.add(40)
        flight = bench.plan()
        bench.scheduler.commit(bench.answer(flight))
        flight = bench.plan()
        bench.scheduler.finish(ended, FinishReason.ABORT, None)
        assert bench.blocks.usage().num_limbo == 2
        # All but one of the free blocks go elsewhere: long, which needs two, must wait for limbo.
        assert bench.blocks.admit(
            99, CacheKey(), [1], num_tokens=(bench.blocks.num_available - 1) * 8
        )
        small = bench.add(1)
        assert bench.scheduler.plan(now=0.0) is None
        bench.scheduler.commit(bench.answer(flight))
        plan = bench.scheduler.plan(now=0.0)
        assert plan is not None
        assert plan.work[0].row == long.row
        assert small.status is SequenceStatus.WAITING


class TestFinish:
    @pytest.mark.parametrize("reason", FinishReason)
    def test_everything_is_given_back_whatever_the_state(self, reason: FinishReason) -> None:
        bench = Bench(num_blocks=2, max_num_seqs=2, budget=24)
        running, preempted, waiting = bench.add(8), bench.add(2), bench.add(2)
        bench.step()
        bench.step()
        assert preempted.status is SequenceStatus.PREEMPTED
        for seq in (running, preempted, waiting):
            bench.scheduler.finish(seq, reason, None)
            bench.scheduler.check()
            assert seq.is_finished
            assert seq.finish_reason is reason
        assert bench.blocks.usage().num_free == 2
        assert not bench.scheduler.has_groups

    def test_finishing_twice_is_a_bug(self) -> None:
        bench = Bench()
        seq = bench.add(1)
        bench.scheduler.finish(seq, FinishReason.STOP, None)
        with pytest.raises(CorruptState, match="from finished to finished"):
            bench.scheduler.finish(seq, FinishReason.STOP, None)

    def test_a_failed_step_names_those_who_were_in_it_and_are_still_there(self) -> None:
        bench = Bench()
        seqs = [bench.add(2) for _ in range(3)]
        bench.plan()
        bench.scheduler.finish(seqs[1], FinishReason.ABORT, None)
        assert bench.scheduler.fail_step() == [seqs[0], seqs[2]]
        assert bench.scheduler.num_inflight == 0


class TestScoring:
    def test_each_position_after_the_first_is_a_target_once(self) -> None:
        bench = Bench(budget=4)
        bench.add(10, prompt_logprobs=0)
        targets = [bench.step().work[0].targets for _ in range(4)]
        assert targets == [(1, 2, 3, 4), (5, 6, 7, 8), (9,), ()]

    def test_nobody_asks_no_targets(self) -> None:
        bench = Bench(budget=4)
        bench.add(10)
        assert bench.step().work[0].targets == ()


class TestWrongResults:
    def test_another_step(self) -> None:
        bench = Bench()
        bench.add(1)
        bench.plan()
        with pytest.raises(CorruptState, match="result of step 2, wanted 1"):
            bench.scheduler.commit(StepResult(2, (RowResult(0, 1),)))

    def test_another_number_of_rows(self) -> None:
        bench = Bench()
        bench.add(1)
        bench.plan()
        with pytest.raises(CorruptState, match="planned 1 rows, got 0"):
            bench.scheduler.commit(StepResult(1))

    def test_another_row(self) -> None:
        bench = Bench()
        bench.add(1)
        bench.plan()
        with pytest.raises(CorruptState, match="got row 3, wanted 0"):
            bench.scheduler.commit(StepResult(1, (RowResult(3, 1),)))

    def test_no_token(self) -> None:
        bench = Bench()
        bench.add(1)
        bench.plan()
        with pytest.raises(CorruptState, match="row 0 has no token"):
            bench.scheduler.commit(StepResult(1, (RowResult(0),)))


class TestCheckHasTeeth:
    def test_a_lost_row(self) -> None:
        bench = Bench()
        bench.scheduler._rows._free.pop()
        with pytest.raises(CorruptState, match="7 free rows and 0 held"):
            bench.scheduler.check()

    def test_a_sequence_in_the_wrong_queue(self) -> None:
        bench = Bench()
        bench.add(1).status = SequenceStatus.RUNNING
        with pytest.raises(CorruptState, match=r"sequences \[0\] are in a queue"):
            bench.scheduler.check()

    def test_a_running_sequence_whose_blocks_are_gone(self) -> None:
        bench = Bench()
        bench.add(1)
        bench.step()
        bench.blocks.free(0)
        with pytest.raises(CorruptState, match=r"\[0\] should"):
            bench.scheduler.check()
