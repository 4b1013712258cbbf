# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.block_history import BlockHistory, Transition
from octavo.cache.block_manager import BlockManager
from octavo.cache.block_pool import Place
from octavo.cache.cache_key import CacheKey
from octavo.types.errors import CorruptState

KEY = CacheKey()
LEASE_S = 60.0


def make(*seq_ids: int) -> BlockManager:
    """Eight blocks of four tokens; each sequence has computed six tokens of its own."""
    manager = BlockManager(8, 4, num_swap_blocks=4, watermark=0.0, history=BlockHistory())
    for step_id, seq_id in enumerate(seq_ids, start=1):
        tokens = list(range(100 * seq_id, 100 * seq_id + 6))
        manager.admit(seq_id, KEY, tokens, num_tokens=6)
        manager.step_submitted(step_id)
        manager.step_completed(step_id)
        manager.publish(seq_id, KEY, tokens, 6)
    return manager


def test_a_balanced_account_has_nothing_to_report() -> None:
    manager = make(1, 2)
    manager.fork(2, 3)
    report = manager.report(num_holders=2)
    assert report.ref_histogram == {0: 4, 1: 2, 2: 2}
    assert report.top_holders == ((1, 2), (2, 2))
    assert (report.orphans, report.quarantined, report.faults) == ((), (), ())


def test_a_lost_decrement_is_found_with_its_owner_and_last_transition() -> None:
    manager = make(1)
    manager._pool.share([1])  # somebody counts a reference and never gives it up
    manager.free(1)
    (orphan,) = manager.report().orphans
    assert (orphan.block_id, orphan.ref_count, orphan.num_named) == (1, 1, 0)
    assert orphan.history[-1] == Transition(owner=1, operation="free", step_id=1)
    with pytest.raises(CorruptState, match="block 1 has 1 references, tables name it 0 times"):
        manager.check()


def test_orphans_come_back_after_the_lease_and_not_before() -> None:
    manager = make(1)
    manager._pool.share([1])
    manager.free(1)
    seen = manager.reclaim(set(), now_s=0.0, lease_s=LEASE_S)
    assert (seen.quarantined, seen.num_blocks) == ((1,), 0)
    assert manager.report().quarantined == (1,)
    assert manager.reclaim(set(), now_s=59.9, lease_s=LEASE_S).num_blocks == 0
    done = manager.reclaim(set(), now_s=60.0, lease_s=LEASE_S)
    assert ([orphan.block_id for orphan in done.orphans], done.num_blocks) == ([1], 1)
    assert manager.explain(1).place is Place.FREE
    assert manager.explain(1).history[-1].operation == "reclaim"
    manager.check(set())


def test_tables_of_sequences_that_nobody_knows_are_freed_after_the_lease() -> None:
    manager = make(1, 2, 3)
    manager.plan_swap_out([3])
    assert manager.reclaim({1}, now_s=0.0, lease_s=LEASE_S).seq_ids == ()
    # 2 turns out to be alive after all: only 3 has been gone for the whole lease.
    assert manager.reclaim({1, 2}, now_s=30.0, lease_s=LEASE_S).seq_ids == ()
    assert manager.reclaim({1}, now_s=61.0, lease_s=LEASE_S).seq_ids == (3,)
    manager.check({1, 2})
    assert manager.reclaim({1}, now_s=121.0, lease_s=LEASE_S).seq_ids == (2,)
    manager.check({1})


def test_a_reclaimed_block_still_waits_for_the_steps_in_flight() -> None:
    manager = make(1)
    manager.step_submitted(2)
    reclaimed = manager.reclaim(set(), now_s=0.0, lease_s=0.0)
    assert (reclaimed.seq_ids, reclaimed.num_blocks) == ((1,), 2)
    assert manager.usage().num_limbo == 2
    manager.step_completed(2)
    assert manager.usage().num_limbo == 0


def test_one_block_explained() -> None:
    manager = make(1)
    manager.fork(1, 2)
    manager.pin(KEY, list(range(100, 106)))
    record = manager.explain(0)
    assert (record.place, record.ref_count, record.owners) == (Place.REFERENCED, 3, (1, 2))
    assert record.num_pins == 1
    assert record.digest is not None
    assert [t.operation for t in record.history] == ["admit", "publish", "fork", "pin"]
    assert manager.explain(1).digest is None
    assert manager.explain(7).place is Place.FREE
    with pytest.raises(IndexError, match=r"in \[0, 8\), got 8"):
        manager.explain(8)


def test_the_dump_lists_every_block() -> None:
    manager = make(1)
    assert [record.block_id for record in manager.dump()] == list(range(8))
    assert manager.dump()[0] == manager.explain(0)


def test_a_block_in_swap_is_explained_with_its_copy() -> None:
    manager = make(1)
    moves = manager.plan_swap_out([1])
    assert moves is not None
    assert manager.explain(0).swap_copy == dict(moves.pairs)[0]
    assert manager.explain(0).place is Place.LIMBO


class TestCheckHasTeeth:
    def test_the_wrong_holders(self) -> None:
        with pytest.raises(CorruptState, match=r"sequences \[1\] hold blocks, \[2\] should"):
            make(1).check({2})

    def test_a_table_that_lost_a_block(self) -> None:
        manager = make(1)
        manager._tables[1].ids.pop()
        with pytest.raises(CorruptState, match="block 1 has 1 references, tables name it 0"):
            manager.check({1})

    def test_a_findable_block_that_is_not_kept(self) -> None:
        manager = make(1)
        manager._pool._retained[0] = 0
        with pytest.raises(CorruptState, match="block 0 is indexed or retained, but not both"):
            manager.check()

    def test_a_copy_of_nothing(self) -> None:
        manager = make(1)
        copies = manager._swap.pool.take(1)
        assert copies is not None
        manager._swap.link(7, copies[0])
        manager._swap.pool.release(copies)
        with pytest.raises(CorruptState, match="block 7 has a swap copy but no content"):
            manager.check()

    def test_a_swap_block_that_nobody_names(self) -> None:
        manager = make(1)
        manager._swap.pool.take(1)
        with pytest.raises(CorruptState, match="swap block 0 has 1 references"):
            manager.check()
