# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import count

import pytest

from enginekit import make_engine
from octavo.engine.beam import BeamSearch
from octavo.engine.steering import BeamRun
from octavo.scheduler.scheduler import Progress
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.sequence import Sequence, SequenceStatus
from octavo.types.step import RowResult, TokenLogprobs


@pytest.fixture
def run() -> BeamRun:
    """A search whose only beam has offered."""
    engine = make_engine()
    params = BeamSearchParams(beam_width=2, max_tokens=5)
    engine.add_request("r", "abc", params)
    group = engine._groups["r"]
    search = BeamSearch(params, max_tokens=5, end_ids=frozenset())
    run = BeamRun(group, search, engine._scheduler, count(1).__next__)
    offer = TokenLogprobs(1, -1.0, 1, ((1, -1.0), (2, -2.0), (3, -3.0), (4, -4.0)))
    run.take(Progress(group.sequences[0], RowResult(0, 1, offer), 3, 1))
    return run


def only_beam(run: BeamRun) -> Sequence:
    (beam,) = run.group.sequences
    return beam


def test_a_search_goes_on_when_every_beam_has_offered(run: BeamRun) -> None:
    assert run.is_ready


def test_an_offer_that_is_about_to_be_made_again_is_awaited(run: BeamRun) -> None:
    """The beam was preempted after its offer, and a step in flight computes its tokens again: what
    that step offers must not be taken for the offer after the next token."""
    beam = only_beam(run)
    beam.num_planned = 3
    assert not run.is_ready
    beam.num_computed = 3
    assert run.is_ready


def test_a_beam_that_is_swapped_out_cannot_fork(run: BeamRun) -> None:
    beam = only_beam(run)
    beam.transition(SequenceStatus.RUNNING)
    beam.transition(SequenceStatus.SWAPPED)
    assert not run.is_ready
