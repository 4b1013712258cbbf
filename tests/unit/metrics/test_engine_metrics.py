# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.metrics.engine_metrics import EngineMetrics
from octavo.types.outputs import FinishReason
from octavo.types.sequence import SequenceGroup
from requestkit import plain_request


@pytest.fixture
def group() -> SequenceGroup:
    request = plain_request()
    group = SequenceGroup(request, arrival_time=1.0, seniority=0)
    group.first_scheduled_time = 1.25
    return group


def test_the_first_token_completes_the_prompt_and_later_ones_are_intervals(
    group: SequenceGroup,
) -> None:
    metrics = EngineMetrics()
    for now in (2.0, 2.5, 4.5):
        metrics.tokens(group, 1, now)
    assert (metrics.prompt_tokens_total, metrics.generation_tokens_total) == (3, 3)
    assert (group.first_token_time, group.last_token_time) == (2.0, 4.5)
    ttft, itl, queue = (h.snapshot() for h in (metrics.ttft_s, metrics.itl_s, metrics.queue_s))
    assert (ttft.count, ttft.sum) == (1, 1.0)
    assert (itl.count, itl.sum) == (2, 2.5)
    assert (queue.count, queue.sum) == (1, 0.25)


def test_an_end_is_counted_by_its_reason(group: SequenceGroup) -> None:
    metrics = EngineMetrics()
    frozen = metrics.frozen_finished()
    metrics.finished(group, FinishReason.TIMEOUT, 9.0)
    assert group.finished_time == 9.0
    assert metrics.e2e_s.snapshot().sum == 8.0
    assert metrics.finished_total["timeout"] == 1
    assert frozen["timeout"] == 0
    assert set(frozen) == {str(reason) for reason in FinishReason}


def test_a_step_is_tokens_and_a_duration() -> None:
    metrics = EngineMetrics()
    metrics.step(12, 0.5)
    metrics.step(1, 0.25)
    assert (metrics.steps_total, metrics.computed_tokens_total) == (2, 13)
    assert (metrics.step_s.snapshot().count, metrics.step_s.snapshot().sum) == (2, 0.75)
