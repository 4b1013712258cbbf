# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from operatorkit import app_over, busy_engine, swapping_engine
from serverkit import connect

from enginekit import make_engine
from octavo.engine.trace import Event
from octavo.server.load import learn, predicted_wait_s
from octavo.server.views import Backlog, backlog
from octavo.types.sampling_params import SamplingParams


def step(start_s: float, duration_s: float, tokens: int, rows: int = 1) -> Event:
    return Event("step", "step", start_s, duration_s, 0, (("tokens", tokens), ("rows", rows)))


FIXED_S, PER_TOKEN_S = 0.01, 0.002


def steady(overlap_s: float = 0.0) -> list[Event]:
    """Steps that take FIXED_S and PER_TOKEN_S for each token of prefill, one after the other; each
    was handed over ``overlap_s`` before its predecessor ended."""
    events, now = [], 0.0
    for number in range(40):
        num_prefill = (7 * number) % 30
        seconds = FIXED_S + PER_TOKEN_S * num_prefill
        events.append(step(now - overlap_s, seconds + overlap_s, num_prefill + 3, rows=3))
        now += seconds
    return events


@pytest.mark.parametrize("overlap_s", [0.0, 0.005])
def test_the_pace_is_read_off_the_steps(overlap_s):
    """The data are exact: what is left is the start of the least squares, which counts as one
    observation of 0 with a variance of 1e6, so some 1e-6; 1e-2 leaves room for other data."""
    costs = learn(steady(overlap_s))
    assert costs.predict(0, 0) == pytest.approx(FIXED_S, rel=1e-2)
    assert costs.prefill_s_per_token == pytest.approx(PER_TOKEN_S, rel=1e-2)


def test_a_step_counted_from_its_submission_would_be_noticed():
    """Shift the starts of steps in a pipeline, and do not say so: the fixed part is wrong."""
    alone = [replace(event, start_s=1e3 * i) for i, event in enumerate(steady(0.005))]
    assert learn(alone).predict(0, 0) > 1.4 * FIXED_S


def test_wait_is_steps_and_tokens():
    stats = replace(make_engine().stats(), num_waiting=1, waiting_by_reason={"capacity": 0})
    waiting = Backlog(time_s=0.0, num_prefill_tokens=100, step_tokens_max=32)
    wanted = 4 * FIXED_S + 100 * PER_TOKEN_S
    assert predicted_wait_s(stats, waiting, steady()) == pytest.approx(wanted, rel=1e-2)
    assert predicted_wait_s(stats, waiting, steady()[:5]) is None  # too few to tell
    blocked = replace(stats, waiting_by_reason={"capacity": 1})
    assert predicted_wait_s(blocked, waiting, steady()) is None


def test_an_idle_engine_keeps_nobody_waiting():
    engine = make_engine()
    assert predicted_wait_s(engine.stats(), backlog(engine), []) == 0.0


def test_backlog_counts_a_prompt_once_and_no_decode():
    engine = make_engine()  # 32 tokens a step
    engine.add_request("long", "x" * 50, SamplingParams(n=3, max_tokens=8, ignore_eos=True))
    assert backlog(engine)["num_prefill_tokens"] == 49
    engine.step()
    assert backlog(engine)["num_prefill_tokens"] == 49 - 32
    engine.step()
    assert backlog(engine)["num_prefill_tokens"] == 0
    engine.step()
    assert engine.has_unfinished()
    assert backlog(engine)["num_prefill_tokens"] == 0


def test_what_is_swapped_out_is_no_prefill():
    engine = swapping_engine()
    assert engine.stats().num_swapped > 0
    running = [g for g in engine.groups.values() if not g.first_scheduled_time]
    waiting = sum(len(group.request.prompt_token_ids) - 1 for group in running)
    assert backlog(engine)["num_prefill_tokens"] <= waiting


@pytest.mark.anyio
async def test_the_document():
    engine = busy_engine()
    async with connect(app_over(engine)) as client:
        found = (await client.get("/load")).json()
    stats = engine.stats()
    assert (found["num_running"], found["num_waiting"], found["num_swapped"]) == (1, 1, 0)
    assert found["oldest_waiting_s"] == 0.25
    assert found["waiting_by_reason"]["capacity"] == 1
    assert found["num_prefill_backlog_tokens"] == 23
    assert found["predicted_wait_s"] is None
    assert found["time_s"] == engine.clock()
    blocks = found["blocks"]
    assert blocks["num_free"] == stats.num_free_blocks
    assert blocks["num_used"] == 5
    assert found["counters"]["generation_tokens_total"] == 8
    assert found["counters"]["steps_total"] == 4
