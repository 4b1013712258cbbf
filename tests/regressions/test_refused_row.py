# SPDX-License-Identifier: Apache-2.0
"""One row that the core refuses must cost its own step and no other: the rows of a failed plan are
what the scheduler believes they are, whichever field was refused."""

from __future__ import annotations

import pytest

from octavo.formats.gguf import GgufFile
from octavo.loaders.gguf import load_gguf
from octavo.models import registry
from octavo.ops.decoder import Decoder
from octavo.types.errors import StepFailed
from octavo.types.step import RowOpen, RowSampling, RowWork, StepPlan
from octavo.worker.worker import Worker
from tiny_gguf import tiny_llama


@pytest.fixture
def worker() -> Worker:
    data = tiny_llama().build()
    file = GgufFile("tiny.gguf", memoryview(data))
    spec, tensors = registry.spec_for(file)
    decoder = Decoder(spec, num_threads=1)
    load_gguf(file, tensors, decoder)
    decoder.create_kv_cache(4, 8, num_rows=3, step_tokens_max=16)
    return Worker(decoder)


def test_refused_settings_leave_the_rows_as_planned(worker: Worker) -> None:
    good, bad = RowOpen(0, RowSampling()), RowOpen(1, RowSampling(temperature=float("nan")))
    worker.execute(StepPlan(1, opened=(good,), work=(RowWork(0, 0, 1, (5,), (0,), True),)))
    with pytest.raises(StepFailed, match="temperature"):
        worker.execute(StepPlan(2, closed=(0,), opened=(RowOpen(2, RowSampling()), bad)))
    work = RowWork(0, 0, 1, (5,), (0,), True)
    (row,) = worker.execute(StepPlan(3, closed=(2, 1), opened=(good,), work=(work,))).rows
    assert row.token_id is not None


@pytest.mark.parametrize("top_p", [1e-300, 1e-46, 2.0**-149, 5e-324])
def test_a_top_p_below_float32_keeps_the_likeliest_token(worker: Worker, top_p: float) -> None:
    settings = RowSampling(temperature=1.0, top_p=top_p, num_logprobs=1)
    work = RowWork(0, 0, 1, (5,), (0,), True)
    (row,) = worker.execute(StepPlan(1, opened=(RowOpen(0, settings),), work=(work,))).rows
    assert row.logprobs is not None
    assert row.logprobs.rank == 1
