# SPDX-License-Identifier: Apache-2.0
"""Do the accounts of both tiers balance, who holds what, and how lost blocks come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from octavo.cache.block_history import BlockHistory, Transition
from octavo.cache.block_pool import BlockPool, Place
from octavo.cache.block_table import BlockTable, SwappedTable
from octavo.cache.prefix_index import PrefixIndex
from octavo.cache.results import BlockUsage
from octavo.cache.swap_pool import SwapPool
from octavo.cache.swapping import Swapper
from octavo.types.errors import CorruptState


@dataclass(frozen=True, slots=True)
class Accounts:
    """The books of a block manager, to read."""

    pool: BlockPool
    index: PrefixIndex
    swap: SwapPool
    swapper: Swapper
    tables: Mapping[int, BlockTable]
    pinned: Mapping[int, int]  # block -> pins that hold it
    set_aside: Sequence[int] = ()  # the null block, where there is one

    def device_lists(self) -> Iterator[list[int]]:
        """Every list of references to device blocks."""
        for table in self.tables.values():
            yield table.ids
        yield from self.swapper.resident_lists()
        yield [block_id for block_id, count in self.pinned.items() for _ in range(count)]
        yield list(self.set_aside)

    def swap_lists(self) -> Iterator[list[int]]:
        """Every list of references to swap blocks."""
        for table in self.swapper.tables.values():
            yield table.swap_ids()

    def usage(self) -> BlockUsage:
        """Blocks by place, those set aside left out. O(sequences)."""
        pool, swap = self.pool, self.swap.pool
        tables = self.tables.values()
        num_set_aside = len(self.set_aside)
        return BlockUsage(
            num_blocks=pool.num_blocks - num_set_aside,
            num_free=pool.num_free,
            num_cached=pool.num_cached,
            num_referenced=pool.num_referenced - num_set_aside,
            num_limbo=pool.num_limbo,
            num_pinned=len(self.pinned),
            num_shared=pool.num_shared - sum(pool.ref_count(b) > 1 for b in self.set_aside),
            num_logical=sum(len(table.ids) - table.num_hidden for table in tables),
            num_waste_slots=sum(table.num_slots - table.num_tokens for table in tables),
            num_swap_blocks=swap.num_blocks,
            num_swap_free=swap.num_free,
            num_swap_cached=swap.num_cached,
            num_swap_referenced=swap.num_referenced,
            num_swap_limbo=swap.num_limbo,
            num_evicted_total=pool.num_evicted,
        )

    def holders(self) -> set[int]:
        """Sequences with a table in either tier."""
        return self.tables.keys() | self.swapper.tables.keys()

    def owners(self) -> dict[int, list[int]]:
        """The sequences that name each device block."""
        owners: dict[int, list[int]] = {}
        lists = {seq_id: table.ids for seq_id, table in self.tables.items()}
        lists |= {seq_id: t.device_ids() for seq_id, t in self.swapper.tables.items()}
        for seq_id, block_ids in lists.items():
            for block_id in block_ids:
                if block_id not in self.set_aside:
                    owners.setdefault(block_id, []).append(seq_id)
        return owners


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One device block, in full."""

    block_id: int
    place: Place
    ref_count: int
    owners: tuple[int, ...]  # sequences whose tables name it
    num_pins: int
    digest: str | None  # hex; None when it is not findable
    swap_copy: int | None  # the swap block that holds the same content
    last_use_step: int
    is_null: bool  # stands in tables for the blocks that nobody will look at any more
    history: tuple[Transition, ...] = ()


class Orphan(NamedTuple):
    """A block with more references than anything names: somebody forgot to give one up."""

    block_id: int
    ref_count: int
    num_named: int
    history: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class BlockReport:
    """All blocks in numbers.

    ref_histogram   {references: blocks}, device tier, zero included
    top_holders     (sequence, blocks it names), most first
    faults          what does not balance, in words; empty when all is well
    swapped         sequence -> its table, of those that are swapped out, to read
    """

    ref_histogram: dict[int, int]
    top_holders: tuple[tuple[int, int], ...]
    orphans: tuple[Orphan, ...]
    quarantined: tuple[int, ...]
    faults: tuple[str, ...]
    swapped: Mapping[int, SwappedTable]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What a reclaim did. Sequences lost their tables; orphans their surplus references."""

    seq_ids: tuple[int, ...] = ()
    orphans: tuple[Orphan, ...] = ()
    quarantined: tuple[int, ...] = ()  # orphans seen, not yet for the whole lease
    num_blocks: int = 0  # that left the referenced place


@dataclass(slots=True)
class _Quarantine:
    """When each suspect was first seen."""

    seqs_s: dict[int, float] = field(default_factory=dict)
    blocks_s: dict[int, float] = field(default_factory=dict)


class BlockAudit:
    """Proves the accounts, or says what is wrong with them. Costs are O(blocks of both tiers)."""

    def __init__(self, accounts: Accounts, history: BlockHistory | None) -> None:
        self._accounts = accounts
        self._history = history
        self._quarantine = _Quarantine()

    def faults(self) -> list[str]:
        """Every way in which the accounts do not balance; empty when they do."""
        a = self._accounts
        found = a.pool.faults(a.device_lists())
        found += [f"swap {fault}" for fault in a.swap.pool.faults(a.swap_lists())]
        found += a.index.faults()
        found += a.swap.faults()
        found += [f"sequence {i} is in both tiers" for i in a.tables.keys() & a.swapper.tables]
        for block_id in range(a.pool.num_blocks):
            if (a.index.node(block_id) is not None) != a.pool.is_retained(block_id):
                found.append(f"block {block_id} is indexed or retained, but not both")
            copied = a.swap.copy_of(block_id) is not None
            if copied and a.pool.ref_count(block_id) == 0 and not a.pool.is_retained(block_id):
                found.append(f"block {block_id} has a swap copy but no content")
        return found

    def check(self, seq_ids: set[int] | None) -> None:
        """Raise ``CorruptState`` naming every fault, or if others than ``seq_ids`` hold blocks."""
        holders = self._accounts.holders()
        if seq_ids is not None and holders != seq_ids:
            raise CorruptState(f"sequences {sorted(holders)} hold blocks, {sorted(seq_ids)} should")
        if found := self.faults():
            raise CorruptState("; ".join(found))

    def report(self, num_holders: int) -> BlockReport:
        pool = self._accounts.pool
        refs = Counter(pool.ref_count(block_id) for block_id in range(pool.num_blocks))
        held = Counter(
            {seq_id: len(t.ids) - t.num_hidden for seq_id, t in self._accounts.tables.items()}
        )
        held.update(
            {
                seq_id: len(t.device_ids()) - t.num_hidden
                for seq_id, t in self._accounts.swapper.tables.items()
            }
        )
        return BlockReport(
            ref_histogram=dict(sorted(refs.items())),
            top_holders=tuple(held.most_common(num_holders)),
            orphans=self.orphans(),
            quarantined=tuple(sorted(self._quarantine.blocks_s)),
            faults=tuple(self.faults()),
            swapped=dict(self._accounts.swapper.tables),
        )

    def orphans(self) -> tuple[Orphan, ...]:
        named = Counter(b for block_ids in self._accounts.device_lists() for b in block_ids)
        pool = self._accounts.pool
        return tuple(
            Orphan(block_id, pool.ref_count(block_id), named[block_id], self._past(block_id))
            for block_id in range(pool.num_blocks)
            if pool.ref_count(block_id) > named[block_id]
        )

    def explain(self, block_id: int) -> BlockRecord:
        """One block. IndexError when there is no such block."""
        return self._record(block_id, self._accounts.owners())

    def dump(self) -> list[BlockRecord]:
        owners = self._accounts.owners()
        return [
            self._record(block_id, owners) for block_id in range(self._accounts.pool.num_blocks)
        ]

    def _record(self, block_id: int, owners: dict[int, list[int]]) -> BlockRecord:
        a = self._accounts
        if not 0 <= block_id < a.pool.num_blocks:
            raise IndexError(f"block must be in [0, {a.pool.num_blocks}), got {block_id}")
        node = a.index.node(block_id)
        return BlockRecord(
            block_id=block_id,
            place=a.pool.place(block_id),
            ref_count=a.pool.ref_count(block_id),
            owners=tuple(owners.get(block_id, ())),
            num_pins=a.pinned.get(block_id, 0),
            digest=node.digest.hex() if node is not None else None,
            swap_copy=a.swap.copy_of(block_id),
            last_use_step=a.pool.fence(block_id),
            is_null=block_id in a.set_aside,
            history=self._past(block_id),
        )

    def _past(self, block_id: int) -> tuple[Transition, ...]:
        return self._history.of(block_id) if self._history is not None else ()

    def reclaim(
        self,
        live_seq_ids: set[int],
        free: Callable[[int], None],
        *,
        now_s: float,
        lease_s: float,
    ) -> Reclaimed:
        """Take back what nobody alive owns, once it has been so for ``lease_s`` seconds.

        Tables of sequences that are not alive are freed; references that nothing names are given
        up. A suspect seen for the first time is only quarantined: it may be in the middle of
        something. Blocks go through the fences like all others, so a step in flight keeps them.
        """
        pool = self._accounts.pool
        num_before = pool.num_referenced
        dead = self._accounts.holders() - live_seq_ids
        expired = _expired(self._quarantine.seqs_s, dead, now_s, lease_s)
        for seq_id in expired:
            free(seq_id)
        orphans = {orphan.block_id: orphan for orphan in self.orphans()}
        lost = _expired(self._quarantine.blocks_s, set(orphans), now_s, lease_s)
        for block_id in lost:
            pool.repair(block_id, orphans[block_id].num_named)
            if self._history is not None:
                self._history.record([block_id], None, "reclaim", pool.submitted_step_id)
        return Reclaimed(
            seq_ids=tuple(expired),
            orphans=tuple(orphans[block_id] for block_id in lost),
            quarantined=tuple(sorted(self._quarantine.blocks_s)),
            num_blocks=num_before - pool.num_referenced,
        )


def _expired(
    first_seen_s: dict[int, float], suspects: set[int], now_s: float, lease_s: float
) -> list[int]:
    """Suspects seen for the whole lease; they leave ``first_seen_s``, and so do the acquitted."""
    for acquitted in first_seen_s.keys() - suspects:
        del first_seen_s[acquitted]
    for suspect in suspects:
        first_seen_s.setdefault(suspect, now_s)
    expired = sorted(i for i, seen_s in first_seen_s.items() if now_s - seen_s >= lease_s)
    for suspect in expired:
        del first_seen_s[suspect]
    return expired
