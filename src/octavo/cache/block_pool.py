# SPDX-License-Identifier: Apache-2.0
"""Physical blocks of one tier: who holds them, and when they may be handed out again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from octavo.cache.eviction import EvictionPolicy, LruPolicy
from octavo.types.errors import CorruptState


class Place(Enum):
    """Where a block is; every block is in exactly one place."""

    FREE = "free"  # holds nothing worth finding
    CACHED = "cached"  # nobody's, but its content can be found; may be evicted
    REFERENCED = "referenced"  # somebody's
    LIMBO = "limbo"  # nobody's, but a step that has not completed may touch it


class BlockPool:
    """Hands out fixed-size blocks and counts references. Pure bookkeeping: no tensors, no I/O.

    Every block is in exactly one of four places, and ``check`` proves it::

        num_free + num_cached + num_referenced + num_limbo == num_blocks

    *Retained* content can be found (the prefix index or a swap link points at it), so a retained
    block that loses its last reference becomes cached instead of free. *Limbo* is the step fence:
    a block given up while a step that may touch it is in flight, or being planned, waits until that
    step has completed. Retained content can be acquired again from limbo: it is not overwritten.

    ``on_gone(block)`` is called when content that nobody references stops existing: at its last
    release if it was not retained, or when it is evicted or forgotten.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        policy: EvictionPolicy | None = None,
        on_gone: Callable[[int], None] | None = None,
    ) -> None:
        if num_blocks < 0:
            raise ValueError(f"num_blocks must be >= 0, got {num_blocks}")
        self.num_blocks = num_blocks
        # A stack: the block freed last is the one most likely still in a CPU cache.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._cached: EvictionPolicy = policy if policy is not None else LruPolicy()
        self._on_gone = on_gone if on_gone is not None else _ignore
        self._refs = [0] * num_blocks
        self._retained = bytearray(num_blocks)
        self._fences = [0] * num_blocks  # newest step that may touch the block, as far as known
        self._limbo: dict[int, dict[int, None]] = {}  # fence -> blocks, in order of release
        self._num_limbo = 0
        self._num_shared = 0
        self._num_references = 0
        self._submitted_step_id = 0
        self._completed_step_id = 0
        self.num_evicted = 0  # since the start

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_available(self) -> int:
        """Blocks that ``take`` can hand out now: free, or cached and so evictable."""
        return len(self._free) + len(self._cached)

    @property
    def num_limbo(self) -> int:
        return self._num_limbo

    @property
    def num_referenced(self) -> int:
        return self.num_blocks - self.num_available - self._num_limbo

    @property
    def num_shared(self) -> int:
        """Blocks with more than one reference."""
        return self._num_shared

    @property
    def submitted_step_id(self) -> int:
        return self._submitted_step_id

    def ref_count(self, block_id: int) -> int:
        return self._refs[block_id]

    def is_retained(self, block_id: int) -> bool:
        return self._retained[block_id] != 0

    def is_cached(self, block_id: int) -> bool:
        return block_id in self._cached

    def fence(self, block_id: int) -> int:
        """The newest step known to touch the block; it may be one that is still being planned."""
        return self._fences[block_id]

    def is_settled(self, block_id: int) -> bool:
        """No copy or move into or out of this block is still to be done."""
        return self._fences[block_id] <= self._completed_step_id

    def place(self, block_id: int) -> Place:
        if self._refs[block_id] > 0:
            return Place.REFERENCED
        if block_id in self._limbo.get(self._fences[block_id], ()):
            return Place.LIMBO
        return Place.CACHED if block_id in self._cached else Place.FREE

    def take(self, count: int) -> list[int] | None:
        """``count`` blocks with one reference each, or None, having changed nothing.

        Free blocks first, then cached ones as the policy says. Running out is an everyday event
        that the scheduler answers by preempting.
        """
        if count > self.num_available:
            return None
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> int:
        if not self._free:
            self._evict()
            self.num_evicted += 1
        block_id = self._free.pop()
        if self._refs[block_id] != 0:
            raise CorruptState(
                f"block {block_id} is free but has {self._refs[block_id]} references"
            )
        self._refs[block_id] = 1
        self._num_references += 1
        return block_id

    def _evict(self) -> None:
        block_id = self._cached.pop()
        self._retained[block_id] = 0
        self._on_gone(block_id)  # may make more blocks free, never take one
        # On top of those: the content that was given up is the content that gets overwritten.
        self._free.append(block_id)

    def share(self, block_ids: Iterable[int]) -> None:
        """One more reference to each block, all of which must be held by someone already."""
        for block_id in block_ids:
            refs = self._refs[block_id]
            if refs < 1:
                raise CorruptState(f"block {block_id} is shared but nobody holds it")
            self._refs[block_id] = refs + 1
            self._num_shared += refs == 1
            self._num_references += 1

    def acquire(self, block_ids: Iterable[int]) -> None:
        """One more reference to each block, whose content was found. Never fails: the caller looked
        it up in the same call, so nothing can have come between.
        """
        for block_id in block_ids:
            refs = self._refs[block_id]
            if refs == 0:
                self._leave(block_id)
            self._refs[block_id] = refs + 1
            self._num_shared += refs == 1
            self._num_references += 1
            if self._retained[block_id]:
                self._cached.hit(block_id)

    def _leave(self, block_id: int) -> None:
        if not self._retained[block_id]:
            raise CorruptState(f"block {block_id} is acquired but its content is gone")
        fence = self._fences[block_id]
        if block_id in self._limbo.get(fence, ()):
            del self._limbo[fence][block_id]
            self._num_limbo -= 1
        else:
            self._cached.remove(block_id)

    def release(self, block_ids: Sequence[int]) -> None:
        """Give up one reference to each block, last block first, so that of what stays cached the
        tail is evicted before the head. Raises ``CorruptState`` on a double free.
        """
        for block_id in reversed(block_ids):
            refs = self._refs[block_id] - 1
            if refs < 0:
                raise CorruptState(f"block {block_id} is released but has no references")
            self._refs[block_id] = refs
            self._num_shared -= refs == 1
            self._num_references -= 1
            if refs == 0:
                self._let_go(block_id)

    def _let_go(self, block_id: int) -> None:
        if self._submitted_step_id > self._completed_step_id:
            self._fences[block_id] = max(self._fences[block_id], self._submitted_step_id)
        fence = self._fences[block_id]
        if fence > self._completed_step_id:
            self._limbo.setdefault(fence, {})[block_id] = None
            self._num_limbo += 1
        else:
            self._settle(block_id)
        if not self._retained[block_id]:
            self._on_gone(block_id)

    def _settle(self, block_id: int) -> None:
        if self._retained[block_id]:
            self._cached.add(block_id)
        else:
            self._free.append(block_id)

    def retain(self, block_id: int) -> None:
        """The content of this block, which somebody holds, can be found from now on."""
        if self._refs[block_id] < 1:
            raise CorruptState(f"block {block_id} is retained but nobody holds it")
        self._retained[block_id] = 1

    def forget(self, block_id: int) -> None:
        """The content cannot be found any more; unless somebody holds the block, it is gone."""
        if not self._retained[block_id]:
            return
        self._retained[block_id] = 0
        evictable = block_id in self._cached
        self._cached.forget(block_id)
        if evictable:
            self._free.append(block_id)
        if self._refs[block_id] == 0:
            self._on_gone(block_id)

    def use(self, block_ids: Iterable[int]) -> None:
        """The step being planned reads or writes these blocks before it computes anything.

        Should they be given up while that step is still being planned, they wait for it.
        """
        for block_id in block_ids:
            self._fences[block_id] = self._submitted_step_id + 1

    def step_submitted(self, step_id: int) -> None:
        """Blocks released from now on may be in use until this step completes."""
        if step_id <= self._submitted_step_id:
            raise CorruptState(f"step {step_id} submitted after step {self._submitted_step_id}")
        self._submitted_step_id = step_id

    def step_completed(self, step_id: int) -> None:
        """This step, and so every earlier one, touches nothing any more."""
        if not self._completed_step_id < step_id <= self._submitted_step_id:
            raise CorruptState(
                f"step {step_id} completed, but {self._completed_step_id} had and"
                f" {self._submitted_step_id} was the last submitted"
            )
        self._completed_step_id = step_id
        for fence in sorted(fence for fence in self._limbo if fence <= step_id):
            blocks = self._limbo.pop(fence)
            self._num_limbo -= len(blocks)
            for block_id in blocks:
                self._settle(block_id)

    def repair(self, block_id: int, ref_count: int) -> None:
        """Set a reference count that was found too high to what the tables say."""
        surplus = self._refs[block_id] - ref_count
        if surplus < 0:
            raise CorruptState(f"block {block_id} has fewer references than tables name it")
        self.release([block_id] * surplus)

    def faults(self, tables: Iterable[Iterable[int]]) -> list[str]:
        """Every way in which the account does not balance; empty when it does. O(blocks).

        ``tables`` are all lists of references: a block's count is how often they name it.
        """
        entries = [0] * self.num_blocks
        for table in tables:
            for block_id in table:
                entries[block_id] += 1
        found = [
            f"block {block_id} has {refs} references, tables name it {named} times"
            for block_id, (refs, named) in enumerate(zip(self._refs, entries, strict=True))
            if refs != named
        ]
        limbo = [block_id for blocks in self._limbo.values() for block_id in blocks]
        cached = [block_id for block_id in range(self.num_blocks) if block_id in self._cached]
        referenced = [block_id for block_id, refs in enumerate(self._refs) if refs > 0]
        total = len(self._free) + len(self._cached) + len(limbo) + len(referenced)
        places = {*self._free, *cached, *limbo, *referenced}
        if total != self.num_blocks or len(places) != total or len(limbo) != self._num_limbo:
            found.append(
                f"{len(self._free)} free + {len(self._cached)} cached + {len(limbo)} limbo +"
                f" {len(referenced)} referenced blocks, {len(places)} of them different, of"
                f" {self.num_blocks}"
            )
        found += [f"block {i} is cached but not retained" for i in cached if not self._retained[i]]
        found += [f"block {i} is free but retained" for i in self._free if self._retained[i]]
        shared = sum(refs > 1 for refs in self._refs)
        if (shared, sum(self._refs)) != (self._num_shared, self._num_references):
            found.append(
                f"{shared} shared blocks and {sum(self._refs)} references, counted"
                f" {self._num_shared} and {self._num_references}"
            )
        return found

    def check(self, tables: Iterable[Iterable[int]]) -> None:
        """Raise ``CorruptState``, naming every fault, unless the account balances."""
        if found := self.faults(tables):
            raise CorruptState("; ".join(found))


def _ignore(block_id: int) -> None:
    """Nobody needs to know that this content is gone."""
