# SPDX-License-Identifier: Apache-2.0
"""Blocks that leave for the swap tier and return elsewhere hold the same bits."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_decoder_invariance import MIXED, WIDE, ids_for
from tiny_decoder import LLAMA, VOCAB, Driver, make_model

from octavo.types.errors import StepFailed
from octavo.types.step import RowOpen, RowResult, RowSampling, RowWork, StepPlan
from octavo.worker.worker import Worker

MODEL = make_model(WIDE, MIXED["legacy"], seed=7)
SMALL = make_model(LLAMA)
SAMPLING = RowSampling(temperature=1.0, seed=5, num_logprobs=VOCAB)


def with_swap(driver: Driver, num_blocks: int, path: Path | None) -> Driver:
    decoder = driver.worker._decoder
    decoder.create_swap(num_blocks, None if path is None else str(path))
    driver.worker = Worker(decoder)
    return driver


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "file" else None


def decode(row: int, start: int, token_id: int | None = None, **fields: object) -> RowWork:
    ids = () if token_id is None else (token_id,)
    return RowWork(row, start, 1, ids, samples=True, **fields)  # type: ignore[arg-type]


def undisturbed(ids: list[int], num_tokens: int) -> list[RowResult]:
    driver = Driver(MODEL)
    driver.open(0, SAMPLING)
    results = [*driver.step(driver.work(0, ids, samples=True))]
    while len(results) < num_tokens:
        results += driver.step(driver.work(0, [], samples=True))
    return results


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_row_swapped_out_and_in_elsewhere_goes_on_as_if_undisturbed(
    place: Path | None, num_threads: int
) -> None:
    """Its old blocks are overwritten meanwhile; it returns to other blocks, in another order."""
    ids = ids_for(1, 40)  # blocks of 16: two full, one half
    expected = undisturbed(ids, 3)
    driver = with_swap(Driver(MODEL, num_threads=num_threads, num_blocks=6), 5, place)
    assert driver.worker.num_swap_blocks == 5
    execute = driver.worker.execute
    opened = (RowOpen(0, SAMPLING), RowOpen(1, SAMPLING))
    prompt = RowWork(0, 0, 40, tuple(ids), (4, 0, 2), samples=True)
    results = [execute(StepPlan(1, opened=opened, work=(prompt,))).rows[0]]

    outs = ((4, 3), (0, 1), (2, 4))
    intruder = RowWork(1, 0, 48, tuple(ids_for(2, 48)), (0, 2, 4), samples=True)
    result = execute(StepPlan(2, closed=(0,), swap_outs=outs, work=(intruder,)))
    assert result.swap_s > 0
    assert result.rows[0].error is None

    last = results[0].token_id
    back = RowOpen(0, SAMPLING, 40, (1, 5, 3))
    ins = ((3, 1), (1, 5), (4, 3))
    plan = StepPlan(3, opened=(back,), swap_ins=ins, work=(decode(0, 40, last),))
    results += execute(plan).rows
    after = execute(StepPlan(4, work=(decode(0, 41),)))
    assert after.swap_s == 0
    results += after.rows
    assert results == expected
    totals = driver.worker.swap_totals()
    assert (totals.blocks_in, totals.blocks_out) == (3, 3)
    assert totals.seconds >= result.swap_s


def test_a_clean_block_may_return_twice(place: Path | None) -> None:
    """The swap tier keeps what it holds when a block returns: the second time out is free."""
    ids = ids_for(1, 16)
    expected = undisturbed(ids, 2)[1]
    driver = with_swap(Driver(MODEL, num_blocks=4), 1, place)
    work = RowWork(0, 0, 16, tuple(ids), (0,), samples=True)
    (first,) = driver.worker.execute(StepPlan(1, opened=(RowOpen(0, SAMPLING),), work=(work,))).rows
    driver.worker.execute(StepPlan(2, closed=(0,), swap_outs=((0, 0),)))
    for block in (1, 2):
        opened = (RowOpen(0, SAMPLING, 16, (block, 3)),)
        plan = StepPlan(
            3, opened=opened, swap_ins=((0, block),), work=(decode(0, 16, first.token_id),)
        )
        assert driver.worker.execute(plan).rows == (RowResult(0, *_told(expected)),)
        driver.worker.execute(StepPlan(4, closed=(0,)))


def _told(row: RowResult) -> tuple[object, object]:
    return row.token_id, row.logprobs


def test_the_wrong_block_would_have_been_seen(place: Path | None) -> None:
    """The planted error: two blocks of a row return in each other's place."""
    ids = ids_for(1, 40)
    driver = with_swap(Driver(MODEL, num_blocks=6), 3, place)
    work = RowWork(0, 0, 40, tuple(ids), (0, 1, 2), samples=True)
    opened = (RowOpen(0, SAMPLING),)
    (first,) = driver.worker.execute(StepPlan(1, opened=opened, work=(work,))).rows
    driver.worker.execute(StepPlan(2, closed=(0,), swap_outs=((0, 0), (1, 1), (2, 2))))
    plan = StepPlan(
        3,
        opened=(RowOpen(0, SAMPLING, 40, (3, 4, 5)),),
        swap_ins=((1, 3), (0, 4), (2, 5)),
        work=(decode(0, 40, first.token_id),),
    )
    (wrong,) = driver.worker.execute(plan).rows
    assert wrong.logprobs != undisturbed(ids, 2)[1].logprobs


@pytest.mark.parametrize(
    ("swap_ins", "swap_outs", "message"),
    [
        (((3, 0),), (), r"swap_ins\[0\].src must be in \[0, 3\), got 3"),
        (((-1, 0),), (), r"swap_ins\[0\].src must be in"),
        (((0, 1), (0, 160)), (), r"swap_ins\[1\].dst must be in \[0, 160\), got 160"),
        ((), ((160, 0),), r"swap_outs\[0\].src must be in \[0, 160\)"),
        ((), ((0, 3),), r"swap_outs\[0\].dst must be in \[0, 3\), got 3"),
    ],
)
def test_a_move_out_of_range_is_refused(
    swap_ins: tuple[tuple[int, int], ...], swap_outs: tuple[tuple[int, int], ...], message: str
) -> None:
    driver = with_swap(Driver(SMALL), 3, None)
    with pytest.raises(StepFailed, match=message):
        driver.worker.execute(StepPlan(1, swap_ins=swap_ins, swap_outs=swap_outs))


def test_bad_tiers_are_refused(tmp_path: Path) -> None:
    decoder = SMALL.decoder()
    with pytest.raises(RuntimeError, match="create_swap needs create_kv first"):
        decoder.create_swap(1)
    decoder.create_kv_cache(4, 8, 1, 8)
    with pytest.raises(ValueError, match="num_swap_blocks must be in"):
        decoder.create_swap(0)
    with pytest.raises(RuntimeError, match=r"cannot make a swap file in .*: No such file"):
        decoder.create_swap(1, str(tmp_path / "nowhere"))
    assert decoder.memory_report().swap_bytes == 0
    decoder.create_swap(3, str(tmp_path))
    assert decoder.memory_report().swap_bytes == 3 * decoder.kv_bytes_per_block(8)
    assert decoder.num_swap_blocks == 3
    with pytest.raises(RuntimeError, match="exists already"):
        decoder.create_swap(1)


def test_a_swap_file_has_no_name_and_takes_no_room_until_it_is_used(tmp_path: Path) -> None:
    before = os.statvfs(tmp_path).f_bavail
    decoder = SMALL.decoder()
    decoder.create_kv_cache(4, 8, 1, 8)
    num_blocks = (4 << 30) // decoder.kv_bytes_per_block(8)
    decoder.create_swap(num_blocks, str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    status = os.statvfs(tmp_path)
    assert (before - status.f_bavail) * status.f_frsize < 1 << 30


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """Writes past it fail as they do on a full disk, with another reason. (Python ignores the
    signal that would come with it.)"""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_grow_fails_the_step_and_nothing_else(tmp_path: Path) -> None:
    """Row 0 is in the step that swaps and fails with it; row 1 goes on, and so does the worker."""
    ids = ids_for(1, 40)
    expected = undisturbed(ids, 2)
    driver = with_swap(Driver(MODEL, num_threads=2), 64, tmp_path)
    execute = driver.worker.execute
    opened = (RowOpen(0, SAMPLING), RowOpen(1, SAMPLING), RowOpen(2, SAMPLING))
    work = tuple(
        RowWork(row, 0, 40, tuple(ids), tuple(range(3 * row, 3 * row + 3)), samples=True)
        for row in range(3)
    )
    rows = execute(StepPlan(1, opened=opened, work=work)).rows
    block_bytes = driver.worker.memory_report().kv_bytes_per_block
    outs = ((6, 63), (7, 0), (8, 1))
    with file_size_limit(8 * block_bytes), pytest.raises(StepFailed, match="writing 3 swap blocks"):
        execute(StepPlan(2, closed=(2,), swap_outs=outs, work=(decode(0, 40),)))
    failed, healthy = execute(StepPlan(3, work=(decode(0, 41), decode(1, 40)))).rows
    assert failed.error == "the row failed in an earlier step"
    assert [rows[1], healthy] == [RowResult(1, *_told(row)) for row in expected]
    again = RowOpen(2, SAMPLING, 40, (20, 21, 22))
    execute(StepPlan(4, swap_outs=outs))  # the blocks are still there, and now there is room
    plan = StepPlan(
        5,
        opened=(again,),
        swap_ins=((63, 20), (0, 21), (1, 22)),
        work=(decode(2, 40, rows[2].token_id),),
    )
    assert execute(plan).rows == (RowResult(2, *_told(expected[1])),)
