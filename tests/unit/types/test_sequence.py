# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import product

import pytest

from octavo.types.errors import CorruptState
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import LEGAL_EDGES, Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import RowSampling

WAITING, RUNNING = SequenceStatus.WAITING, SequenceStatus.RUNNING
PREEMPTED, FINISHED = SequenceStatus.PREEMPTED, SequenceStatus.FINISHED
SWAPPED = SequenceStatus.SWAPPED

LEGAL = {
    (WAITING, RUNNING),
    (WAITING, FINISHED),
    (RUNNING, PREEMPTED),
    (RUNNING, SWAPPED),
    (RUNNING, FINISHED),
    (SWAPPED, RUNNING),
    (SWAPPED, PREEMPTED),
    (SWAPPED, FINISHED),
    (PREEMPTED, RUNNING),
    (PREEMPTED, FINISHED),
}


def make(**params: object) -> Sequence:
    request = Request(
        request_id="r",
        prompt=None,
        prompt_token_ids=(1, 2, 3),
        params=SamplingParams(**params),  # type: ignore[arg-type]
        max_tokens=5,
        eos_token_id=None,
        stop_token_ids=frozenset(),
    )
    group = SequenceGroup(request, arrival_time=1.5, seniority=0)
    group.sequences.append(Sequence(7, group, RowSampling()))
    return group.sequences[0]


@pytest.mark.parametrize(("before", "after"), list(product(SequenceStatus, SequenceStatus)))
def test_exactly_the_legal_edges_can_be_walked(
    before: SequenceStatus, after: SequenceStatus
) -> None:
    seq = make()
    seq.status = before
    if (before, after) in LEGAL:
        seq.transition(after)
        assert seq.status is after
    else:
        with pytest.raises(CorruptState, match=f"cannot go from {before.value} to {after.value}"):
            seq.transition(after)
        assert seq.status is before


def test_the_table_names_every_status_and_finished_is_final() -> None:
    assert LEGAL_EDGES.keys() == set(SequenceStatus)
    assert not LEGAL_EDGES[FINISHED]


def test_a_new_sequence_waits_with_its_prompt() -> None:
    seq = make()
    assert (seq.status, seq.num_tokens, seq.num_outputs, seq.num_computed) == (WAITING, 3, 0, 0)
    assert seq.num_tokens_max == 8
    assert seq.row is None
    assert not seq.is_finished
    assert not seq.group.is_finished


def test_outputs_are_what_follows_the_prompt() -> None:
    seq = make()
    seq.token_ids += [9, 8]
    seq.num_inflight_samples = 1
    assert seq.output_token_ids == [9, 8]
    assert (seq.num_outputs, seq.group.num_outputs, seq.num_expected) == (2, 2, 6)


def test_forgetting_the_row_makes_later_results_stale_and_keeps_the_tokens() -> None:
    seq = make()
    seq.row, seq.num_computed, seq.num_planned, seq.num_given = 4, 2, 3, 3
    seq.num_inflight_samples = 1
    seq.forget_row()
    assert seq.row is None
    assert seq.epoch == 1
    assert (seq.num_computed, seq.num_planned, seq.num_given, seq.num_expected) == (0, 0, 0, 3)
    assert seq.token_ids == [1, 2, 3]


def test_only_the_first_sample_scores_the_prompt() -> None:
    assert make().num_to_score == 0
    first = make(prompt_logprobs=2)
    assert first.num_to_score == 3
    assert Sequence(8, first.group, RowSampling(sample_idx=1)).num_to_score == 0


def test_the_groups_metrics_are_its_stamps() -> None:
    group = make().group
    group.first_token_time = 2.5
    metrics = group.metrics()
    assert (metrics.arrival_time, metrics.first_token_time, metrics.finished_time) == (
        1.5,
        2.5,
        None,
    )
