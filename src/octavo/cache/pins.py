# SPDX-License-Identifier: Apache-2.0
"""Prompts and templates that stay cached whatever the eviction policy thinks of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from octavo.cache.block_pool import BlockPool
from octavo.cache.cache_key import CacheKey
from octavo.cache.prefix_index import Node


class Pins:
    """A pin is a reference like a sequence's, so a pinned block is never a candidate for eviction.

    At most half of all blocks may be pinned, so that there is always room to run.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: dict[tuple[CacheKey, tuple[int, ...]], tuple[int, ...]] = {}
        self.counts: Counter[int] = Counter()  # block -> pins that hold it

    def pin(self, key: CacheKey, token_ids: Sequence[int], nodes: Sequence[Node]) -> list[int]:
        """Hold as many of ``nodes`` as may be pinned; returns their blocks.

        A second pin of the same tokens replaces the first.
        """
        blocks: list[int] = []
        room = self._pool.num_blocks // 2 - len(self.counts)
        for node in nodes:
            room -= node.block_id not in self.counts
            if room < 0:
                break
            blocks.append(node.block_id)
        self._pool.acquire(blocks)
        self.counts.update(blocks)
        self.unpin(key, token_ids)
        if blocks:
            self._blocks[key, tuple(token_ids)] = tuple(blocks)
        return blocks

    def unpin(self, key: CacheKey, token_ids: Sequence[int]) -> tuple[int, ...] | None:
        """Give up a pin's references; None when there is no such pin."""
        blocks = self._blocks.pop((key, tuple(token_ids)), None)
        if blocks is not None:
            self._let_go(blocks)
        return blocks

    def clear(self) -> None:
        for blocks in self._blocks.values():
            self._let_go(blocks)
        self._blocks.clear()

    def num_apart_from(self, block_ids: set[int]) -> int:
        """Pinned blocks that are not among these: out of reach for whoever needs other blocks."""
        return len(self.counts.keys() - block_ids)

    def _let_go(self, blocks: tuple[int, ...]) -> None:
        self.counts.subtract(blocks)
        for block_id in blocks:
            if self.counts[block_id] == 0:
                del self.counts[block_id]
        self._pool.release(blocks)
