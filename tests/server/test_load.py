# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from operatorkit import app_over, busy_engine, swapping_engine
from serverkit import connect

from enginekit import make_engine
from octavo.server.load import predicted_wait_s
from octavo.server.views import Backlog, backlog
from octavo.types.sampling_params import SamplingParams


def test_wait_is_what_the_backlog_takes():
    stats = replace(make_engine().stats(), num_waiting=1, waiting_by_reason={"capacity": 0})
    waiting = Backlog(time_s=0.0, num_prefill_tokens=100, seconds=0.25)
    assert predicted_wait_s(stats, waiting) == 0.25
    assert predicted_wait_s(stats, waiting | {"seconds": None}) is None  # too few steps to tell
    blocked = replace(stats, waiting_by_reason={"capacity": 1})
    assert predicted_wait_s(blocked, waiting) is None


FIXED_S, PER_TOKEN_S = 0.01, 0.002


def test_the_backlog_is_priced_by_what_the_scheduler_has_learnt():
    """The data are exact: what is left is the start of the least squares, which counts as one
    observation of 0 with a variance of 1e6, so some 1e-6; 1e-2 leaves room for other data."""
    engine = make_engine()  # 32 tokens a step
    engine.add_request("long", "x" * 60, SamplingParams(max_tokens=1))
    assert backlog(engine)["seconds"] is None
    for number in range(40):
        num_prefill = (7 * number) % 30
        engine.costs.observe(num_prefill, 0, FIXED_S + PER_TOKEN_S * num_prefill)
    waiting = backlog(engine)
    assert waiting["num_prefill_tokens"] == 59
    assert waiting["seconds"] == pytest.approx(2 * FIXED_S + 59 * PER_TOKEN_S, rel=1e-2)


def test_an_idle_engine_keeps_nobody_waiting():
    engine = make_engine()
    assert predicted_wait_s(engine.stats(), backlog(engine)) == 0.0


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
