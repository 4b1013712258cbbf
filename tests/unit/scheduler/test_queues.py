# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest

from octavo.scheduler.queues import Queues, RankedQueue
from octavo.types.errors import CorruptState
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import SequenceGroup


def group(seniority: int) -> SequenceGroup:
    request = Request(
        request_id=str(seniority),
        prompt=None,
        prompt_token_ids=(1,),
        params=SamplingParams(),
        max_tokens=1,
        eos_token_id=None,
        stop_token_ids=frozenset(),
    )
    return SequenceGroup(request, arrival_time=0.0, seniority=seniority)


def test_order_is_rank_and_not_arrival_in_the_queue() -> None:
    queue = RankedQueue()
    assert (queue.first, queue.last, len(queue)) == (None, None, 0)
    groups = [group(seniority) for seniority in range(20)]
    for item in random.Random(0).sample(groups, 20):
        queue.add(item)
    assert list(queue) == groups
    assert (queue.first, queue.last, queue[3]) == (groups[0], groups[19], groups[3])
    queue.remove(groups[0])
    queue.remove(groups[7])
    assert list(queue) == [*groups[1:7], *groups[8:]]


@pytest.mark.parametrize("seniority", [0, 5, 9])
def test_removing_what_is_not_there_is_a_bug(seniority: int) -> None:
    queue = RankedQueue()
    for item in (1, 5):
        queue.add(group(item))
    with pytest.raises(CorruptState, match=f"'{seniority}' is not in the queue"):
        queue.remove(group(seniority))


def test_rank_goes_before_seniority_and_the_oldest_is_found_anywhere() -> None:
    queue = RankedQueue()
    old, urgent = group(1), group(2)
    old.rank, urgent.rank = (1.0, 0.0, 1), (0.0, 0.0, 2)
    urgent.arrival_time = 5.0
    queue.add(old)
    queue.add(urgent)
    assert list(queue) == [urgent, old]
    assert queue.oldest is old
    assert (queue.head(1), old in queue, group(1) in queue) == ([urgent], True, False)


def test_a_group_in_no_queue_has_no_home() -> None:
    queues = Queues()
    item = group(3)
    queues.swapped.add(item)
    assert queues.home(item) is queues.swapped
    queues.swapped.remove(item)
    with pytest.raises(CorruptState, match="in no queue"):
        queues.home(item)
