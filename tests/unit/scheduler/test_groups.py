# SPDX-License-Identifier: Apache-2.0
"""Groups of several sequences: the samples of one prompt, and beams."""

from __future__ import annotations

import pytest

from echo import expected_tokens
from octavo.types.errors import CorruptState
from octavo.types.outputs import FinishReason
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from schedkit import BLOCK_SIZE, Rig


def assert_answers(group: SequenceGroup) -> None:
    for seq in group.sequences:
        prompt = seq.token_ids[: seq.num_prompt]
        assert seq.output_token_ids == expected_tokens(
            prompt, seq.num_tokens_max - seq.num_prompt, seq.sampling
        )


@pytest.mark.parametrize("budget", [512, 5])
def test_the_prompt_of_four_samples_is_computed_once(budget: int) -> None:
    rig = Rig(max_num_batched_tokens=budget)
    group = rig.add(20, num_samples=4, max_tokens=6)
    num_tokens = 0
    while group.num_outputs == 0:
        plan = rig.step()
        num_tokens += plan.num_tokens
    assert num_tokens == 20
    assert [work.logits_of for work in plan.work] == [None, 0, 0, 0]
    assert rig.blocks.usage().num_referenced == 3  # 20 tokens, whoever looks at them
    assert group.num_outputs == 4
    assert len({seq.token_ids[-1] for seq in group.sequences}) > 1
    rig.drain()
    assert_answers(group)


def test_memory_grows_by_what_the_samples_write_and_not_by_what_they_share() -> None:
    rig = Rig()
    rig.add(4 * BLOCK_SIZE + 3, num_samples=4, max_tokens=6)
    rig.step()
    plan = rig.step()
    # Each writes into the fifth block: three get a copy of its 3 slots, the last owner keeps it.
    assert [(copy.num_tokens) for copy in plan.copies] == [3, 3, 3]
    assert rig.blocks.usage().num_referenced == 4 + 4


def test_all_samples_count_from_the_start() -> None:
    rig = Rig(max_num_seqs=4, max_num_batched_tokens=8)
    rig.add(30, num_samples=3)
    small = rig.add(2, num_samples=2)
    rig.step()
    assert small.sequences[0].status is SequenceStatus.WAITING
    rig.drain()
    assert_answers(small)


def test_a_group_that_is_too_large_alone_is_served_in_part() -> None:
    """Eight blocks; three samples of 16 + 40 tokens would need 2 + 3 * 5."""
    rig = Rig(num_blocks=8, max_num_batched_tokens=64)
    group = rig.add(16, num_samples=3, max_tokens=40)
    rig.drain()
    assert_answers(group)
    assert group.num_preemptions == 0
    assert rig.scheduler.preemptions.num_recomputes > 0


@pytest.mark.parametrize("caching", [True, False])
def test_a_recomputed_group_computes_its_prompt_once_again(caching: bool) -> None:
    rig = Rig(prefix_caching=caching, preemption_mode="recompute")
    group = rig.add(4 * BLOCK_SIZE, num_samples=3, max_tokens=30)
    for _ in range(5):
        rig.step()
    rig.scheduler.force_preempt(group)
    num_tokens = sum(rig.step().num_tokens for _ in range(2))
    tails = 3 * 5 + 3  # what each had sampled, and one more step of each
    assert num_tokens <= 4 * BLOCK_SIZE * (not caching) + tails
    rig.drain()
    assert_answers(group)


def test_a_sample_that_ends_leaves_the_others_alone() -> None:
    rig = Rig()
    group = rig.add(10, num_samples=3, max_tokens=6)
    rig.step()
    rig.scheduler.finish(group.sequences[0], FinishReason.STOP, None)
    rig.scheduler.force_preempt(group)
    rig.drain()
    for seq in group.sequences[1:]:
        assert seq.finish_reason is FinishReason.LENGTH
        assert seq.num_outputs == 6


class TestBeams:
    def steered(self, rig: Rig, width: int) -> SequenceGroup:
        group = rig.add(11, max_tokens=8)
        group.num_seqs_max = width
        group.sequences[0].is_steered = True
        return group

    def child(self, parent: Sequence, seq_id: int) -> Sequence:
        seq = Sequence(seq_id, parent.group, parent.sampling)
        seq.is_steered = True
        seq.token_ids = list(parent.token_ids)
        parent.group.sequences.append(seq)
        return seq

    def test_a_steered_sequence_waits_for_its_token_and_spells_it_out(self) -> None:
        rig = Rig(depth=2)
        (seq,) = self.steered(rig, 1).sequences
        rig.plan()
        assert rig.scheduler.plan(0.0) is None
        rig.commit()
        assert seq.num_outputs == 0
        seq.token_ids.append(77)
        (work,) = rig.plan().work
        assert (work.start, work.token_ids, work.samples) == (11, (77,), True)

    def test_beams_share_their_past_and_part_by_copy_on_write(self) -> None:
        rig = Rig()
        group = self.steered(rig, 2)
        parent = group.sequences[0]
        rig.step()
        child = self.child(parent, 1)
        rig.scheduler.fork(parent, child)
        parent.token_ids.append(1)
        child.token_ids.append(2)
        plan = rig.step()
        assert [copy.num_tokens for copy in plan.copies] == [3]
        assert [work.token_ids for work in plan.work] == [(1,), (2,)]
        # The parent is given up at once; its past lives on in the child's table.
        grandchild = self.child(child, 2)
        rig.scheduler.fork(child, grandchild)
        rig.scheduler.finish(parent, FinishReason.ABORT, None)
        child.token_ids.append(3)
        grandchild.token_ids.append(4)
        assert [work.token_ids for work in rig.step().work] == [(3,), (4,)]

    @pytest.mark.parametrize("mode", ["swap", "recompute"])
    def test_beams_survive_preemption(self, mode: str) -> None:
        rig = Rig(num_swap_blocks=16, preemption_mode=mode)
        group = self.steered(rig, 2)
        parent = group.sequences[0]
        rig.step()
        child = self.child(parent, 1)
        rig.scheduler.fork(parent, child)
        parent.token_ids.append(1)
        child.token_ids.append(2)
        rig.step()
        parent.token_ids.append(3)
        child.token_ids.append(4)
        rig.scheduler.force_preempt(group)
        for _ in range(4):
            if rig.scheduler.plan(0.0) is None:
                break
            rig.executor.submit(rig.scheduler._flights[-1].plan)
            rig.commit()
        assert (parent.num_computed, child.num_computed) == (13, 13)

    def test_a_fork_without_a_row_is_a_bug(self) -> None:
        rig = Rig(num_rows=1)
        parent = self.steered(rig, 1).sequences[0]
        rig.step()
        with pytest.raises(CorruptState, match="no row"):
            rig.scheduler.fork(parent, self.child(parent, 1))
