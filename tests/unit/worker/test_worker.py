# SPDX-License-Identifier: Apache-2.0
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


class Ticks:
    """A clock that moves one second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def worker() -> Worker:
    data = tiny_llama().build()
    file = GgufFile("tiny.gguf", memoryview(data))
    spec, tensors = registry.spec_for(file)
    decoder = Decoder(spec, num_threads=1)
    load_gguf(file, tensors, decoder)
    decoder.create_kv_cache(4, 8, num_rows=2, step_tokens_max=16)
    return Worker(decoder, clock=Ticks())


def test_a_file_becomes_a_step(worker: Worker) -> None:
    assert (worker.num_blocks, worker.block_size, worker.num_rows) == (4, 8, 2)
    opened = (RowOpen(1, RowSampling(num_logprobs=2)),)
    plan = StepPlan(3, opened=opened, work=(RowWork(1, 0, 2, (5, 6), (2,), samples=True),))
    result = worker.execute(plan)
    assert (result.step_id, result.compute_s) == (3, 1.0)
    (row,) = result.rows
    assert row.row == 1
    assert row.logprobs is not None
    assert row.logprobs.top[0] == (row.token_id, row.logprobs.logprob)
    assert len(row.logprobs.top) == 2


def test_a_refused_plan_fails_the_step_with_its_number(worker: Worker) -> None:
    with pytest.raises(StepFailed, match=r"step 8: work\[0\]: row 0 is closed"):
        worker.execute(StepPlan(8, work=(RowWork(0, 0, 1, (1,), (0,)),)))


def test_a_refused_plan_still_closes_and_opens_its_rows(worker: Worker) -> None:
    first, second = RowOpen(0, RowSampling()), RowOpen(1, RowSampling())
    worker.execute(StepPlan(1, opened=(first,), work=(RowWork(0, 0, 1, (5,), (0,), True),)))
    with pytest.raises(StepFailed, match="block"):
        worker.execute(
            StepPlan(2, closed=(0,), opened=(second,), work=(RowWork(1, 0, 9, (5,) * 9, (0,)),))
        )
    work = RowWork(0, 0, 1, (5,), (0,), True)
    (row,) = worker.execute(StepPlan(3, closed=(1,), opened=(first,), work=(work,))).rows
    assert row.token_id is not None


def test_a_number_that_fits_no_integer_is_refused_too(worker: Worker) -> None:
    with pytest.raises(StepFailed, match="step 8"):
        worker.execute(StepPlan(8, work=(RowWork(-1, 0, 1, (1,), (0,)),)))


def test_close_is_idempotent(worker: Worker) -> None:
    worker.close()
    worker.close()
    with pytest.raises(StepFailed, match="closed"):
        worker.execute(StepPlan(0))
