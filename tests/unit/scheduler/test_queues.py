# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest

from octavo.scheduler.queues import SeniorityQueue
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


def test_order_is_seniority_and_not_arrival_in_the_queue() -> None:
    queue = SeniorityQueue()
    assert (queue.oldest, queue.youngest, len(queue)) == (None, None, 0)
    groups = [group(seniority) for seniority in range(20)]
    for item in random.Random(0).sample(groups, 20):
        queue.add(item)
    assert list(queue) == groups
    assert (queue.oldest, queue.youngest, queue[3]) == (groups[0], groups[19], groups[3])
    queue.remove(groups[0])
    queue.remove(groups[7])
    assert list(queue) == [*groups[1:7], *groups[8:]]


@pytest.mark.parametrize("seniority", [0, 5, 9])
def test_removing_what_is_not_there_is_a_bug(seniority: int) -> None:
    queue = SeniorityQueue()
    for item in (1, 5):
        queue.add(group(item))
    with pytest.raises(CorruptState, match=f"'{seniority}' is not in the queue"):
        queue.remove(group(seniority))
