# SPDX-License-Identifier: Apache-2.0
"""Blocks behind the window go while their sequence lives; the null block stands in for them."""

from __future__ import annotations

import pytest

from cachekit import KEY, admit_and_run, run, tokens
from octavo.cache.block_manager import AllocStatus, BlockManager
from octavo.types.errors import CorruptState

WINDOW = 6


def make(num_blocks: int = 13, *, window: int = WINDOW, caching: bool = True) -> BlockManager:
    return BlockManager(
        num_blocks, 4, num_swap_blocks=8, prefix_caching=caching, watermark=0.0, window=window
    )


def ids(manager: BlockManager, seq_id: int) -> list[int]:
    table = manager.table(seq_id)
    assert table is not None
    return table.ids


def null(manager: BlockManager) -> int:
    (record,) = [record for record in manager.dump() if record.is_null]
    return record.block_id


@pytest.mark.parametrize("caching", [True, False])
def test_the_table_keeps_its_shape_and_the_pool_gets_the_block(caching: bool) -> None:
    manager = make(caching=caching)
    blocks = admit_and_run(manager, 1, tokens(13))
    before = manager.usage()
    assert manager.slide(1, 13) == 2  # position 13 sees 8 to 13
    assert ids(manager, 1) == [null(manager)] * 2 + list(blocks[2:])
    after = manager.usage()
    assert after.num_referenced == before.num_referenced - 2
    assert after.num_logical == 2
    assert (after.num_cached, after.num_free) == ((2, 8) if caching else (0, 10))
    assert manager.slide(1, 13) == 0
    manager.check({1})


def test_the_null_block_counts_nowhere() -> None:
    manager = make()
    usage = manager.usage()
    assert (usage.num_blocks, usage.num_free, usage.num_referenced) == (12, 12, 0)
    assert manager.num_blocks == 12
    assert manager.num_slots == 48
    record = manager.explain(null(manager))
    assert (record.ref_count, record.owners) == (1, ())
    admit_and_run(manager, 1, tokens(20))
    manager.slide(1, 20)
    assert manager.usage().num_shared == 0
    assert manager.explain(null(manager)).owners == ()
    assert manager.report().top_holders == ((1, 2),)
    assert manager.report().orphans == ()
    manager.free(1)
    manager.check(set())


def test_a_step_in_flight_keeps_what_it_sees() -> None:
    """The next step is under way when the last one ends, and it may look at the block."""
    manager = make(caching=False)
    manager.admit(1, KEY, tokens(12), num_tokens=12)
    manager.step_submitted(1)
    assert manager.grow(1, 13, write_from=12) is not None
    manager.step_submitted(2)
    manager.step_completed(1)
    assert manager.slide(1, 12) == 1
    assert manager.usage().num_limbo == 1
    manager.step_completed(2)
    assert manager.usage().num_limbo == 0


def test_what_is_not_published_yet_waits() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(4))
    assert manager.grow(1, 17, write_from=4) is not None
    manager.step_submitted(2)
    manager.step_completed(2)
    assert manager.slide(1, 17) == 1
    manager.publish(1, KEY, tokens(17), 17)
    assert manager.slide(1, 17) == 2


def test_a_hit_needs_all_blocks_and_takes_those_it_sees() -> None:
    manager = make()
    blocks = admit_and_run(manager, 1, tokens(17))
    manager.slide(1, 17)
    admission = manager.admit(2, KEY, tokens(18), num_tokens=18)
    assert admission is not None
    assert admission.num_cached_tokens == 16
    assert admission.blocks[:4] == (null(manager), null(manager), *blocks[2:4])
    manager.check({1, 2})
    run(manager, 2, tokens(18))
    manager.free(1)
    manager.free(2)
    # The second block is evicted first; what follows it cannot be found any more.
    manager.admit(3, KEY, tokens(44, first=100), num_tokens=44)
    assert manager.probe(KEY, tokens(18)).num_cached_tokens == 4
    manager.check({3})


def test_a_prompt_longer_than_the_pool_starts_on_what_is_cached() -> None:
    """All twelve blocks are findable, and the prompt goes on for as many: it needs one more."""
    manager = make()
    token_ids = tokens(96)
    manager.admit(1, KEY, token_ids, num_tokens=8)
    for end in range(8, 49, 8):
        run(manager, 1, token_ids[:end])
        manager.slide(1, end)
        if end < 48:
            assert manager.grow(1, end + 8, write_from=end) is not None
    manager.free(1)
    assert manager.probe(KEY, token_ids, num_tokens=52).status is AllocStatus.OK
    admission = manager.admit(2, KEY, token_ids, num_tokens=52)
    assert admission is not None
    assert admission.num_cached_tokens >= 40
    manager.check({2})


def test_a_fork_and_a_swap_carry_the_null_blocks_along() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(17))
    manager.slide(1, 17)
    manager.fork(1, 2)
    assert ids(manager, 2) == ids(manager, 1)
    manager.check({1, 2})
    moves = manager.plan_swap_out([1, 2])
    assert moves is not None
    assert len(moves.pairs) == 2
    run_step(manager, 2)
    manager.check({1, 2})
    back = manager.swap_in([1, 2])
    assert back is not None
    assert back.tables[1][:3] == (null(manager),) * 3
    run_step(manager, 3)
    manager.publish(1, KEY, tokens(17), 17)  # it cannot any more: its beginning is not there
    manager.check({1, 2})
    manager.free(1)
    manager.free(2)
    manager.check(set())


def run_step(manager: BlockManager, step_id: int) -> None:
    manager.step_submitted(step_id)
    manager.step_completed(step_id)


def test_what_has_slid_too_far_cannot_be_cut_back() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(20))
    manager.slide(1, 20)
    assert manager.reaches_back(1, 18)
    assert not manager.reaches_back(1, 16)
    with pytest.raises(CorruptState, match="cut to 16 tokens has lost its start"):
        manager.truncate(1, 16)
    assert manager.num_tokens_to_keep(1, 1, 20) == 0
    manager.truncate(1, 0)
    assert ids(manager, 1) == []
    manager.check({1})


def test_a_pool_of_one_block_has_no_null_block_to_spare() -> None:
    with pytest.raises(ValueError, match="num_blocks must be >= 2, got 1"):
        BlockManager(1, 4, window=4)
