# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from enginekit import greedy, make_engine, run_all
from fakes import EchoExecutor, ManualClock
from octavo.engine.engine import Engine
from octavo.types.outputs import RequestOutput


def run(engine: Engine, clock: ManualClock, step_s: float = 1.0) -> dict[str, RequestOutput]:
    """The last output of each request; every step takes ``step_s``."""
    last = {}
    while engine.has_unfinished():
        clock.advance(step_s)
        for output in engine.step():
            if output.finished:
                last[output.request_id] = output
        engine.check()
    return last


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_total_ends_an_answer_with_what_it_has(depth: int) -> None:
    clock = ManualClock()
    engine = make_engine(EchoExecutor(depth=depth), clock=clock)
    engine.add_request("late", "a", greedy(30, timeout_s=5.5))
    engine.add_request("other", "a", greedy(30))
    last = run(engine, clock)
    (sample,) = last["late"].outputs
    assert (sample.finish_reason, len(sample.token_ids)) == ("timeout", 5)
    assert last["late"].num_output_tokens == 5
    assert last["other"].outputs[0].finish_reason == "length"
    stats = engine.stats()
    assert stats.finished_total["timeout"] == 1
    assert stats.num_used_blocks == 0


def test_the_queue_limit_is_for_those_who_never_started() -> None:
    clock = ManualClock()
    engine = make_engine(EchoExecutor(num_rows=1), clock=clock, max_num_seqs=1)
    engine.add_request("first", "a", greedy(20, queue_timeout_s=4.0))
    engine.add_request("second", "b", greedy(20, queue_timeout_s=4.0))
    last = run(engine, clock)
    assert last["first"].outputs[0].finish_reason == "length"
    assert last["second"].outputs[0].finish_reason == "timeout"
    assert last["second"].num_output_tokens == 0


def test_the_first_token_limit_is_met_by_the_first_token() -> None:
    clock = ManualClock()
    engine = make_engine(clock=clock, max_num_batched_tokens=4)
    engine.add_request("short", [1] * 4, greedy(20, ttft_timeout_s=3.5))
    engine.add_request("long", [2] * 40, greedy(20, ttft_timeout_s=3.5))
    last = run(engine, clock)
    assert last["short"].outputs[0].finish_reason == "length"
    assert last["long"].outputs[0].finish_reason == "timeout"


def test_arrival_counts_and_not_the_moment_of_filing() -> None:
    clock = ManualClock(100.0)
    engine = make_engine(clock=clock)
    engine.add_request("r", "a", greedy(20, timeout_s=10.0), arrival_time=85.0)
    (output,) = run_all(engine)
    assert output.outputs[0].finish_reason == "timeout"


def test_a_cut_prompt_is_flagged_in_the_answer() -> None:
    engine = make_engine(max_model_len=20)
    engine.add_request("r", [1] * 30, greedy(4, on_overflow="truncate_left"))
    last = run_all(engine)[-1]
    assert (last.num_truncated_tokens, len(last.prompt_token_ids)) == (14, 16)
    assert last.num_output_tokens == 4


def test_an_answer_tells_where_its_time_went() -> None:
    clock = ManualClock()
    engine = make_engine(clock=clock, max_num_batched_tokens=4)
    engine.add_request("r", [1] * 8, greedy(4))
    last = run(engine, clock)["r"]
    assert last.metrics is not None
    timeline = last.metrics.timeline
    assert timeline is not None
    assert (timeline.queue_s, timeline.prefill_s, timeline.decode_s) == (1.0, 1.0, 3.0)
    names = [event.name for event in engine.trace.events() if event.category == "request"]
    assert names == ["queue", "prefill", "decode"]
    steps = [event for event in engine.trace.events() if event.category == "step"]
    assert len(steps) == 5
