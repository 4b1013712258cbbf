# SPDX-License-Identifier: Apache-2.0
"""One row whose settings the core refuses must cost itself alone. A plan that the core refuses must
cost its own step and no other: its rows are what the scheduler believes they are."""

from __future__ import annotations

import pytest

from octavo.formats.gguf import GgufFile
from octavo.loaders.gguf import load_gguf
from octavo.models import registry
from octavo.ops.decoder import Decoder
from octavo.types.errors import StepFailed
from octavo.types.step import RowOpen, RowSampling, RowWork, StepPlan
from octavo.worker.worker import Worker
from tiny_gguf import VOCAB, tiny_llama


@pytest.fixture
def worker() -> Worker:
    data = tiny_llama().build()
    file = GgufFile("tiny.gguf", memoryview(data))
    spec, tensors = registry.spec_for(file)
    decoder = Decoder(spec, num_threads=1)
    load_gguf(file, tensors, decoder)
    decoder.create_kv_cache(4, 8, num_rows=3, step_tokens_max=16)
    return Worker(decoder)


def test_a_refused_plan_leaves_the_rows_as_planned(worker: Worker) -> None:
    good, bad = RowOpen(0, RowSampling()), RowOpen(1, RowSampling(), num_computed=9)
    worker.execute(StepPlan(1, opened=(good,), work=(RowWork(0, 0, 1, (5,), (0,), True),)))
    with pytest.raises(StepFailed, match="num_computed"):
        worker.execute(StepPlan(2, closed=(0,), opened=(RowOpen(2, RowSampling()), bad)))
    work = RowWork(0, 0, 1, (5,), (0,), True)
    (row,) = worker.execute(StepPlan(3, closed=(2, 1), opened=(good,), work=(work,))).rows
    assert row.token_id is not None


@pytest.mark.parametrize(
    ("sampling", "reason"),
    [
        (RowSampling(temperature=float("nan")), "temperature"),
        (RowSampling(top_k=-1), "top_k cannot be -1"),
        (RowSampling(logit_bias=((2**40, 1.0),)), "logit_bias cannot be"),
        (RowSampling(allowed_ids=(10**6,)), "allowed_ids"),
    ],
)
def test_refused_settings_cost_their_row_alone(
    worker: Worker, sampling: RowSampling, reason: str
) -> None:
    opened = (RowOpen(0, RowSampling()), RowOpen(1, sampling), RowOpen(2, RowSampling()))
    work = tuple(RowWork(row, 0, 1, (5,), (row,), True) for row in range(3))
    rows = worker.execute(StepPlan(1, opened=opened, work=work)).rows
    assert reason in (rows[1].error or "")
    assert rows[0].token_id == rows[2].token_id is not None
    again = tuple(RowWork(row, 1, 1, (), (), True) for row in range(3))
    rows = worker.execute(StepPlan(2, work=again)).rows
    assert [row.error is None for row in rows] == [True, False, True]
    fresh = RowWork(1, 0, 1, (5,), (1,), True)
    plan = StepPlan(3, closed=(1,), opened=(RowOpen(1, RowSampling()),), work=(fresh,))
    assert worker.execute(plan).rows[0].error is None


def test_settings_that_leave_no_token_cost_their_row_alone(worker: Worker) -> None:
    """Every id ends the answer, and none may come yet."""
    nothing = RowSampling(banned_until=100, banned_ids=tuple(range(VOCAB)), num_logprobs=1)
    opened = (RowOpen(0, nothing), RowOpen(1, RowSampling()))
    work = tuple(RowWork(row, 0, 1, (5,), (row,), True) for row in range(2))
    rows = worker.execute(StepPlan(1, opened=opened, work=work)).rows
    assert rows[0].error == "the settings leave no token for position 1"
    assert rows[1].token_id is not None


@pytest.mark.parametrize("top_p", [1e-300, 1e-46, 2.0**-149, 5e-324])
def test_a_top_p_below_float32_keeps_the_likeliest_token(worker: Worker, top_p: float) -> None:
    settings = RowSampling(temperature=1.0, top_p=top_p, num_logprobs=1)
    work = RowWork(0, 0, 1, (5,), (0,), True)
    (row,) = worker.execute(StepPlan(1, opened=(RowOpen(0, settings),), work=(work,))).rows
    assert row.logprobs is not None
    assert row.logprobs.rank == 1
