# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from fakes import ManualClock
from octavo.engine.trace import Event, Lifecycle, Trace
from octavo.types.outputs import Timeline
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import RowSampling
from requestkit import plain_request


@pytest.fixture
def group() -> SequenceGroup:
    request = plain_request()
    group = SequenceGroup(request, arrival_time=10.0, seniority=4)
    group.sequences.append(Sequence(4, group, RowSampling()))
    return group


def test_the_ring_keeps_the_last_and_counts_what_it_dropped() -> None:
    trace = Trace(3)
    for idx in range(5):
        trace.record(Event(f"e{idx}", "step", float(idx), 0.5, 0))
    assert [event.name for event in trace.events()] == ["e2", "e3", "e4"]
    assert trace.to_chrome()["otherData"] == {"num_dropped": 2}


def test_the_export_is_json_in_microseconds_with_named_tracks() -> None:
    trace = Trace()
    trace.record(Event("step 1", "step", 1.5, 0.25, 0, (("rows", 2),)))
    trace.record(Event("queue", "request", 1.0, None, 8, (("request_id", "r7"),)))
    document = json.loads(json.dumps(trace.to_chrome()))
    *names, step, moment = document["traceEvents"]
    assert [name["args"]["name"] for name in names] == ["octavo", "steps", "r7"]
    assert (step["ph"], step["ts"], step["dur"], step["args"]) == ("X", 1.5e6, 0.25e6, {"rows": 2})
    assert (moment["ph"], moment["ts"], moment["tid"]) == ("i", 1e6, 8)


def test_a_lifecycle_adds_up_to_the_stay(group: SequenceGroup) -> None:
    clock, trace = ManualClock(10.0), Trace()
    lifecycle = Lifecycle(group, trace, clock)
    group.observer = lifecycle.moved
    (seq,) = group.sequences
    moves: list[tuple[float, SequenceStatus | None]] = [
        (1.0, SequenceStatus.RUNNING),
        (2.0, None),  # the first token
        (4.0, SequenceStatus.PREEMPTED),
        (8.0, SequenceStatus.RUNNING),
        (16.0, SequenceStatus.FINISHED),
    ]
    for seconds, status in moves:
        clock.advance(seconds)
        if status is None:
            group.first_token_time = clock()
            lifecycle.update(clock())
        else:
            seq.transition(status)
    assert lifecycle.timeline() == Timeline(
        queue_s=1.0, prefill_s=2.0, decode_s=20.0, swapped_s=0.0, stalled_s=8.0
    )
    spans = [event for event in trace.events() if event.category == "request"]
    names = [event.name for event in spans]
    assert names == ["queue", "prefill", "decode", "stalled", "decode"]
    assert sum(event.duration_s or 0.0 for event in spans) == clock() - group.arrival_time


def test_a_group_is_where_its_busiest_sequence_is(group: SequenceGroup) -> None:
    clock, trace = ManualClock(10.0), Trace()
    lifecycle = Lifecycle(group, trace, clock)
    group.observer = lifecycle.moved
    group.sequences.append(Sequence(5, group, RowSampling(sample_idx=1)))
    first, second = group.sequences
    first.transition(SequenceStatus.RUNNING)
    clock.advance(1.0)
    second.transition(SequenceStatus.FINISHED)
    clock.advance(1.0)
    first.transition(SequenceStatus.FINISHED)
    assert lifecycle.timeline() == Timeline(prefill_s=2.0)
