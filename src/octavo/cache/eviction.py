# SPDX-License-Identifier: Apache-2.0
"""Which cached block to forget when a fresh one is needed.

A policy orders the blocks that nobody references but that still hold findable content. Blocks in
use are not in it at all, so pinned and running blocks cannot be chosen. Every call is O(1),
``pop`` amortised.
"""

from __future__ import annotations

from typing import Protocol

from octavo.types.errors import InvalidConfig


class EvictionPolicy(Protocol):
    """Holds block ids in the order in which they will be given up."""

    def __len__(self) -> int:
        """Blocks that may be evicted now."""

    def __contains__(self, block_id: int) -> bool:
        """Whether this block may be evicted now."""

    def add(self, block_id: int) -> None:
        """A block with findable content has lost its last reference."""

    def remove(self, block_id: int) -> None:
        """It is referenced again."""

    def hit(self, block_id: int) -> None:
        """Its content was found and is of use once more; it is referenced now."""

    def forget(self, block_id: int) -> None:
        """Its content is gone. The block may be in use, evictable, or neither."""

    def pop(self) -> int:
        """Give up one block: its content will be overwritten. KeyError when there is none."""


class LruPolicy:
    """The block unused for longest goes first. A dict keeps the order of insertion."""

    def __init__(self) -> None:
        self._order: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._order

    def add(self, block_id: int) -> None:
        self._order[block_id] = None

    def remove(self, block_id: int) -> None:
        del self._order[block_id]

    def hit(self, block_id: int) -> None:
        """Only the time of the last use counts."""

    def forget(self, block_id: int) -> None:
        self._order.pop(block_id, None)

    def pop(self) -> int:
        return _pop_oldest(self._order)


class S3FifoPolicy:
    """Blocks that were found before outlive those used once (after Yang et al., SOSP 2023).

    A block enters the *small* queue. One that was never found again leaves from there, so a stream
    of prompts that never repeat cannot push out a template that does. A block that was found waits
    in the *main* queue, and goes back to its end once per remembered hit before it is given up.
    The original also remembers keys whose content is gone; here a prompt that is computed again
    simply enters the small queue again.
    """

    # Two bits per block in the paper: more hits than this do not make a block more precious,
    # and fewer turns are needed before yesterday's favourite can go.
    MAX_HITS = 3
    # The small queue's share of all: enough for a second use to be noticed, in the paper's traces.
    SMALL_SHARE = 10

    def __init__(self) -> None:
        self._small: dict[int, None] = {}
        self._main: dict[int, None] = {}
        self._hits: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._small or block_id in self._main

    def add(self, block_id: int) -> None:
        queue = self._main if block_id in self._hits else self._small
        queue[block_id] = None

    def remove(self, block_id: int) -> None:
        queue = self._small if block_id in self._small else self._main
        del queue[block_id]

    def hit(self, block_id: int) -> None:
        self._hits[block_id] = min(self._hits.get(block_id, 0) + 1, self.MAX_HITS)

    def forget(self, block_id: int) -> None:
        self._small.pop(block_id, None)
        self._main.pop(block_id, None)
        self._hits.pop(block_id, None)

    def pop(self) -> int:
        if self._small and (not self._main or len(self._small) * self.SMALL_SHARE >= len(self)):
            return _pop_oldest(self._small)
        while True:  # every turn but the last uses up a hit: at most MAX_HITS turns per block
            block_id = _pop_oldest(self._main)
            hits = self._hits.pop(block_id)
            if hits == 1:
                return block_id
            self._hits[block_id] = hits - 1
            self._main[block_id] = None


def _pop_oldest(queue: dict[int, None]) -> int:
    for block_id in queue:
        del queue[block_id]
        return block_id
    raise KeyError("no block may be evicted")


EVICTION_POLICIES: dict[str, type[LruPolicy] | type[S3FifoPolicy]] = {
    "lru": LruPolicy,
    "s3fifo": S3FifoPolicy,
}


def make_policy(name: str) -> EvictionPolicy:
    """The policy of that name; ``InvalidConfig`` lists the names when there is none."""
    if name not in EVICTION_POLICIES:
        choices = ", ".join(EVICTION_POLICIES)
        raise InvalidConfig(f"eviction must be one of {choices}, got {name!r}")
    return EVICTION_POLICIES[name]()
