# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from octavo.cache.block_pool import Place
from octavo.cache.swap_pool import SwapPool


def linked(num_blocks: int, devices: list[int]) -> tuple[SwapPool, list[int]]:
    """A pool with one copy, held once, for each device block."""
    swap = SwapPool(num_blocks)
    copies = swap.pool.take(len(devices))
    assert copies is not None
    for device_block, copy in zip(devices, copies, strict=True):
        swap.link(device_block, copy)
    return swap, copies


def test_a_clean_copy_is_kept_when_nobody_needs_it_and_given_up_for_others() -> None:
    swap, (copy, _) = linked(2, [5, 6])
    swap.pool.release([copy])
    assert swap.pool.place(copy) is Place.CACHED
    assert swap.copy_of(5) == copy
    assert swap.device_of(copy) == 5
    assert swap.pool.take(1) == [copy]
    assert swap.copy_of(5) is None
    assert swap.device_of(copy) is None
    assert swap.faults() == []


def test_a_written_block_has_no_copy() -> None:
    swap, (copy,) = linked(1, [5])
    swap.mark_dirty(5)
    swap.mark_dirty(5)
    assert swap.copy_of(5) is None
    assert swap.pool.place(copy) is Place.REFERENCED  # a swapped sequence still reads it
    swap.pool.release([copy])
    assert swap.pool.place(copy) is Place.FREE
    assert len(swap) == 0


def test_copies_of_a_failed_step_vouch_for_nothing() -> None:
    swap, copies = linked(2, [5, 6])
    swap.pool.use([copies[1]])
    swap.pool.step_submitted(1)
    swap.forget_unsettled_copies()
    assert (swap.copy_of(5), swap.copy_of(6)) == (copies[0], None)


def test_faults_has_teeth() -> None:
    swap, copies = linked(2, [5, 6])
    swap._device_of[copies[0]] = 6
    swap.pool.forget(copies[1])
    assert swap.faults() == [
        "device block 5 is linked to swap block 0, which is linked to 6",
        "device block 6 is linked to swap block 1, which is linked to 6",
        "2 device blocks linked, 2 swap blocks, 1 retained",
    ]
