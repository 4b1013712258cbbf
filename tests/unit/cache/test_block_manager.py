# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from cachekit import KEY, admit_and_run, make, run, tokens
from octavo.cache.block_history import BlockHistory
from octavo.cache.block_manager import AllocStatus, BlockManager
from octavo.cache.cache_key import CacheKey
from octavo.types.errors import CorruptState, InvalidConfig
from octavo.types.step import BlockCopy


def ids(manager: BlockManager, seq_id: int) -> list[int]:
    table = manager.table(seq_id)
    assert table is not None
    return table.ids


# Copy-on-write


def test_the_drawing_a_and_b_share_x_and_c_writes() -> None:
    """A and B map X; C, a fork of B, writes: C gets Y, X keeps two references, Y has one."""
    manager = make()
    a, b, c = 1, 2, 3
    admission = manager.admit(a, KEY, tokens(3), num_tokens=3)
    assert admission is not None
    (x,) = admission.blocks
    run(manager, a, tokens(3))
    assert manager.fork(a, b) == (x,)
    assert manager.fork(b, c) == (x,)
    growth = manager.grow(c, 4, write_from=3)
    assert growth is not None
    ((idx, y),) = growth.replaced
    assert (idx, growth.new_blocks) == (0, ())
    assert growth.copies == (BlockCopy(src=x, dst=y, num_tokens=3),)
    assert (ids(manager, a), ids(manager, b), ids(manager, c)) == ([x], [x], [y])
    assert (manager.explain(x).ref_count, manager.explain(y).ref_count) == (2, 1)
    manager.check({a, b, c})


def test_only_the_filled_slots_are_copied_and_the_last_owner_writes_in_place() -> None:
    manager = make()
    (x,) = admit_and_run(manager, 1, tokens(1))
    manager.fork(1, 2)
    manager.fork(1, 3)
    copied = []
    for seq_id in (1, 2, 3):
        growth = manager.grow(seq_id, 2, write_from=1)
        assert growth is not None
        copied += growth.copies
    assert [(copy.src, copy.num_tokens) for copy in copied] == [(x, 1), (x, 1)]
    assert ids(manager, 3) == [x]
    manager.check({1, 2, 3})


def test_a_fork_costs_references_only_and_full_blocks_are_never_copied() -> None:
    manager = make()
    blocks = admit_and_run(manager, 1, tokens(8))
    before = manager.usage()
    manager.fork(1, 2)
    after = manager.usage()
    assert (after.num_free, after.num_logical) == (before.num_free, 2 * before.num_logical)
    for seq_id in (1, 2):
        growth = manager.grow(seq_id, 9, write_from=8)
        assert growth is not None
        assert (growth.replaced, growth.copies, len(growth.new_blocks)) == ((), (), 1)
        assert tuple(ids(manager, seq_id)[:2]) == blocks


def test_memory_grows_with_the_tails_of_the_samples_not_with_their_prompts() -> None:
    """n = 8 samples of 5 blocks of prompt: the prompt once, and a tail each."""
    manager = make(num_blocks=64)
    admit_and_run(manager, 1, tokens(18))
    for child in range(2, 9):
        manager.fork(1, child)
    for seq_id in range(1, 9):
        assert manager.grow(seq_id, 24, write_from=18) is not None
    # 4 full prompt blocks; the partial fifth and one more for each of the eight.
    assert manager.usage().num_referenced == 4 + 8 * 2
    assert manager.usage().num_logical == 8 * 6


@pytest.mark.parametrize("num_free", range(4))
def test_growing_is_transactional_wherever_it_fails(num_free: int) -> None:
    """Growing by one copy and three new blocks, with one, two, three and four blocks missing."""
    manager = make(num_blocks=5 + num_free)
    admit_and_run(manager, 1, tokens(2))
    manager.fork(1, 2)
    admit_and_run(manager, 3, tokens(16, first=100))
    before, table = manager.usage(), list(ids(manager, 2))
    assert before.num_free == num_free
    assert manager.grow(2, 16, write_from=2) is None
    assert manager.usage() == before
    assert ids(manager, 2) == table
    manager.check({1, 2, 3})
    manager.free(3)
    growth = manager.grow(2, 16, write_from=2)
    assert growth is not None
    assert (len(growth.new_blocks), len(growth.replaced)) == (3, 1)


def test_growth_is_exact_a_block_with_room_needs_nothing() -> None:
    manager = make(num_blocks=1)
    admit_and_run(manager, 1, tokens(1))
    for num_tokens in (2, 3, 4):
        assert manager.num_blocks_to_grow(1, num_tokens, write_from=num_tokens - 1) == 0
        assert manager.grow(1, num_tokens, write_from=num_tokens - 1) is not None
    assert manager.grow(1, 5, write_from=4) is None
    assert manager.num_blocks_missing(1, 5) == 1


def test_what_is_published_is_never_written_again() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(5))
    with pytest.raises(CorruptState, match="writes at position 3, below the 1 blocks"):
        manager.grow(1, 6, write_from=3)


def test_a_sequence_cut_back_into_a_published_block_gets_a_copy() -> None:
    manager = make()
    (x, _) = admit_and_run(manager, 1, tokens(5))
    manager.truncate(1, 2)
    assert ids(manager, 1) == [x]
    growth = manager.grow(1, 4, write_from=2)
    assert growth is not None
    ((_, y),) = growth.replaced
    assert growth.copies == (BlockCopy(x, y, 2),)
    assert manager.probe(KEY, tokens(5)).num_cached_tokens == 4
    manager.check({1})


def test_a_copy_of_what_the_same_step_computes_is_refused() -> None:
    manager = make()
    manager.admit(1, KEY, tokens(2), num_tokens=2)
    manager.grow(1, 2, write_from=0)
    manager.fork(1, 2)
    with pytest.raises(CorruptState, match="copied in the step that computes it"):
        manager.grow(2, 3, write_from=2)


# Admission and the prefix cache


def test_a_prompt_starts_where_another_has_been() -> None:
    manager = make()
    blocks = admit_and_run(manager, 1, tokens(10))
    admission = manager.admit(2, KEY, [*tokens(8), 77, 78], num_tokens=10)
    assert admission is not None
    assert admission.num_cached_tokens == 8
    assert admission.blocks[:2] == blocks[:2]
    assert admission.copies == ()
    manager.check({1, 2})


def test_the_last_token_is_always_computed() -> None:
    manager = make()
    blocks = admit_and_run(manager, 1, tokens(8))
    admission = manager.admit(2, KEY, tokens(8), num_tokens=8)
    assert admission is not None
    assert admission.num_cached_tokens == 7
    assert admission.blocks[0] == blocks[0]
    assert admission.copies == (BlockCopy(blocks[1], admission.blocks[1], 3),)


@pytest.mark.parametrize("num_common", range(9))
def test_matching_is_finer_than_a_block(num_common: int) -> None:
    manager = make()
    blocks = admit_and_run(manager, 1, tokens(8))
    prompt = tokens(num_common) + tokens(9 - num_common, first=100)
    admission = manager.admit(2, KEY, prompt, num_tokens=9)
    assert admission is not None
    assert admission.num_cached_tokens == num_common
    num_full, num_partial = divmod(num_common, 4)
    assert admission.blocks[:num_full] == blocks[:num_full]
    copies = [(copy.src, copy.num_tokens) for copy in admission.copies]
    assert copies == ([(blocks[num_full], num_partial)] if num_partial else [])
    manager.check({1, 2})


def test_nothing_is_found_before_its_step_has_completed() -> None:
    manager = make()
    manager.admit(1, KEY, tokens(5), num_tokens=5)
    manager.step_submitted(1)
    assert manager.probe(KEY, tokens(5)).num_cached_tokens == 0
    manager.step_completed(1)
    manager.publish(1, KEY, tokens(5), 3)
    assert manager.probe(KEY, tokens(5)).num_cached_tokens == 0  # the block is not full yet
    manager.publish(1, KEY, tokens(5), 4)
    assert manager.probe(KEY, tokens(5)).num_cached_tokens == 4


def test_a_block_still_to_be_swapped_in_or_copied_is_not_published() -> None:
    manager = make(num_swap_blocks=4)
    admit_and_run(manager, 1, tokens(4))
    manager.reset_prefix_cache()
    admit_and_run(manager, 2, tokens(3))
    manager.plan_swap_out([2])
    run(manager, 2, tokens(3))
    manager.swap_in([2])
    manager.publish(2, KEY, tokens(4), 4)  # its bytes arrive with the step being planned
    assert manager.probe(KEY, tokens(5)).num_cached_tokens == 0


def test_salt_and_adapter_keep_prompts_apart() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(5))
    assert manager.probe(KEY, tokens(5)).num_cached_tokens == 4
    assert manager.probe(CacheKey(salt="tenant"), tokens(5)).num_cached_tokens == 0
    assert manager.probe(CacheKey(adapter="style"), tokens(5)).num_cached_tokens == 0


def test_equal_blocks_keep_the_older_one_findable() -> None:
    manager = make()
    older = manager.admit(1, KEY, tokens(5), num_tokens=5)
    newer = manager.admit(2, KEY, tokens(5), num_tokens=5)
    assert older is not None
    assert newer is not None
    run(manager, 1, tokens(5))
    manager.publish(2, KEY, tokens(5), 5)
    third = manager.admit(3, KEY, tokens(5), num_tokens=5)
    assert third is not None
    assert third.blocks[0] == older.blocks[0]
    manager.free(2)
    assert manager.usage().num_cached == 0  # the newer one was nothing special: it is free
    manager.check({1, 3})


def test_a_chain_broken_by_eviction_is_published_anew() -> None:
    """2 computes what 1 has: its nodes hang on 1's blocks, then on its own."""
    manager = make(num_blocks=6)
    manager.admit(1, KEY, tokens(4), num_tokens=4)
    manager.admit(2, KEY, tokens(5), num_tokens=5)
    run(manager, 1, tokens(4))
    manager.publish(2, KEY, tokens(5), 5)
    manager.free(1)
    admit_and_run(manager, 3, tokens(16, first=100))  # takes all that is left
    assert manager.probe(KEY, tokens(5), ignore_watermark=True).num_cached_tokens == 0
    manager.publish(2, KEY, tokens(5), 5)
    assert manager.probe(KEY, tokens(5), ignore_watermark=True).num_cached_tokens == 4
    manager.check({2, 3})


def test_freed_prompts_stay_findable_and_their_tail_is_evicted_first() -> None:
    manager = make(num_blocks=4)
    admit_and_run(manager, 1, tokens(12))
    manager.free(1)
    usage = manager.usage()
    assert (usage.num_free, usage.num_cached) == (1, 3)
    admit_and_run(manager, 2, tokens(8, first=100))  # takes the free one and evicts one
    assert manager.probe(KEY, tokens(12)).num_cached_tokens == 8
    manager.check({2})


def test_cached_blocks_count_as_available() -> None:
    manager = make(num_blocks=4)
    admit_and_run(manager, 1, tokens(16))
    manager.free(1)
    assert manager.usage().num_cached == 4
    assert manager.num_available == 4
    assert manager.admit(2, KEY, tokens(16, first=50), num_tokens=16) is not None


def test_a_full_pool_is_never_too_small_for_the_prompt_that_filled_it() -> None:
    """Keeping the source of a partial copy would need a fifth block: the tokens are recomputed."""
    manager = make(num_blocks=4)
    admit_and_run(manager, 1, tokens(16))
    manager.free(1)
    admission = manager.admit(2, KEY, tokens(16), num_tokens=16)
    assert admission is not None
    assert (admission.num_cached_tokens, admission.copies) == (12, ())
    manager.check({2})


def test_the_source_of_a_copy_is_not_evicted_to_make_room_for_it() -> None:
    manager = make(num_blocks=2)
    (x,) = admit_and_run(manager, 1, tokens(4))
    manager.free(1)
    admission = manager.admit(2, KEY, tokens(3), num_tokens=3)
    assert admission is not None
    assert admission.copies == (BlockCopy(x, admission.blocks[0], 2),)
    assert admission.blocks[0] != x
    assert manager.usage().num_limbo == 1  # x, until the step that copies from it has completed
    assert manager.grow(2, 5, write_from=4) is None
    run(manager, 2, tokens(3))
    assert manager.grow(2, 5, write_from=4) is not None


def test_a_hit_takes_its_references_at_once() -> None:
    """Between an admission and its step nobody can evict what it found."""
    manager = make(num_blocks=3)
    blocks = admit_and_run(manager, 1, tokens(8))
    manager.free(1)
    admission = manager.admit(2, KEY, [*tokens(8), 9], num_tokens=9)
    assert admission is not None
    assert admission.blocks[:2] == blocks
    assert manager.admit(3, KEY, tokens(4, first=60), num_tokens=4) is None


@pytest.mark.parametrize("num_missing", range(1, 5))
def test_admission_is_transactional_wherever_it_fails(num_missing: int) -> None:
    manager = make(num_blocks=8)
    admit_and_run(manager, 1, tokens(8))
    manager.free(1)
    admit_and_run(manager, 2, tokens(4 * (1 + num_missing), first=100))
    before = manager.usage()
    # Two of its blocks are cached; it needs six more, and 5 - num_missing are there.
    assert manager.admit(3, KEY, tokens(32), num_tokens=32) is None
    assert manager.usage() == before
    assert manager.probe(KEY, tokens(9)).num_cached_tokens == 8
    manager.check({2})


def test_ok_later_never() -> None:
    manager = make(num_blocks=4)
    prompt = tokens(16)
    assert manager.probe(KEY, prompt).status is AllocStatus.OK
    assert manager.probe(KEY, tokens(17)).status is AllocStatus.NEVER
    admit_and_run(manager, 1, tokens(4, first=100))
    assert manager.probe(KEY, tokens(12)).status is AllocStatus.OK
    assert manager.probe(KEY, tokens(12)).num_new_blocks == 3
    assert manager.probe(KEY, tokens(13)).status is AllocStatus.LATER
    assert manager.probe(KEY, tokens(13), num_tokens=8).status is AllocStatus.OK


def test_hits_count_before_memory_is_called_short() -> None:
    manager = make(num_blocks=4)
    admit_and_run(manager, 1, tokens(13))
    probe = manager.probe(KEY, tokens(14))
    assert probe == (12, 1, AllocStatus.LATER)
    manager.truncate(1, 12)
    assert manager.probe(KEY, tokens(14)).status is AllocStatus.OK


def test_the_watermark_holds_back_admission_but_never_growth_or_an_idle_engine() -> None:
    manager = BlockManager(10, 4, watermark=0.2)
    assert manager.num_watermark_blocks == 2
    assert manager.admit(1, KEY, tokens(36), num_tokens=36) is None
    assert manager.probe(KEY, tokens(36)).status is AllocStatus.LATER
    assert manager.admit(1, KEY, tokens(32), num_tokens=32) is not None
    assert manager.grow(1, 40, write_from=32) is not None
    manager.free(1)
    assert manager.admit(2, KEY, tokens(40), num_tokens=40, ignore_watermark=True) is not None


def test_without_prefix_caching_nothing_is_found() -> None:
    manager = BlockManager(8, 4, prefix_caching=False)
    admit_and_run(manager, 1, tokens(8))
    assert manager.probe(KEY, tokens(8)).num_cached_tokens == 0
    manager.free(1)
    assert manager.usage().num_free == 8


# Fences


def test_freed_blocks_return_with_the_fence() -> None:
    manager = make(num_blocks=2)
    manager.admit(1, KEY, tokens(8), num_tokens=8)
    manager.step_submitted(1)
    manager.free(1)
    assert manager.admit(2, KEY, tokens(1), num_tokens=1) is None
    manager.step_completed(1)
    assert manager.admit(2, KEY, tokens(1), num_tokens=1) is not None
    manager.step_submitted(2)
    manager.free(2)
    manager.free(2)  # has nothing: no error
    assert manager.usage().num_limbo == 1
    assert manager.num_blocks_missing(3, 12) == 1
    assert manager.num_blocks_missing(3, 8) == 0
    manager.step_completed(2)
    assert manager.usage().num_free == 2
    manager.check(set())


def test_a_findable_block_can_be_found_again_while_it_waits() -> None:
    manager = make(num_blocks=3)
    blocks = admit_and_run(manager, 1, tokens(8))
    manager.step_submitted(2)
    manager.free(1)
    assert manager.usage().num_limbo == 2
    admission = manager.admit(2, KEY, [*tokens(8), 5], num_tokens=9)
    assert admission is not None
    assert admission.blocks[:2] == blocks
    assert manager.usage().num_limbo == 0
    manager.step_completed(2)
    manager.check({2})


# Tables


def test_truncating_gives_up_the_tail() -> None:
    manager = make()
    blocks = admit_and_run(manager, 1, tokens(12))
    manager.truncate(1, 5)
    assert tuple(ids(manager, 1)) == blocks[:2]
    assert manager.usage().num_waste_slots == 3
    manager.truncate(1, 0)
    assert ids(manager, 1) == []
    manager.check({1})


def test_waste_is_bounded_by_the_last_block() -> None:
    manager = make(num_blocks=64)
    for seq_id, length in enumerate((1, 4, 5, 8, 11)):
        manager.admit(seq_id, KEY, tokens(length, first=100 * seq_id), num_tokens=length)
    usage = manager.usage()
    assert usage.num_waste_slots == 3 + 0 + 3 + 0 + 1
    assert usage.num_waste_slots <= 5 * (4 - 1)


def test_misuse_is_named() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(2))
    with pytest.raises(CorruptState, match="sequence 1 has a table already"):
        manager.admit(1, KEY, tokens(2), num_tokens=2)
    with pytest.raises(CorruptState, match="sequence 9 has no table on the device"):
        manager.grow(9, 1, write_from=0)
    with pytest.raises(ValueError, match="block_size must be >= 1, got 0"):
        BlockManager(1, 0)
    with pytest.raises(ValueError, match="num_blocks must be >= 1, got 0"):
        BlockManager(0, 1)
    with pytest.raises(ValueError, match="watermark must be in"):
        BlockManager(1, 1, watermark=1.0)
    with pytest.raises(InvalidConfig, match="lru, s3fifo, got 'mru'"):
        BlockManager(1, 1, eviction="mru")


def test_exclusive_blocks_are_what_a_victim_would_free() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(6))
    manager.fork(1, 2)
    manager.grow(2, 7, write_from=6)
    assert manager.num_exclusive_blocks([1]) == 1
    assert manager.num_exclusive_blocks([2]) == 1
    assert manager.num_exclusive_blocks([1, 2]) == 3


def test_the_history_names_owner_operation_and_step() -> None:
    manager = BlockManager(8, 4, history=BlockHistory())
    admit_and_run(manager, 1, tokens(3))
    manager.fork(1, 2)
    manager.grow(2, 4, write_from=3)
    manager.free(1)
    happened = [(t.owner, t.operation, t.step_id) for t in manager.explain(0).history]
    assert happened == [(1, "admit", 0), (2, "fork", 1), (2, "copied_from", 1), (1, "free", 1)]
