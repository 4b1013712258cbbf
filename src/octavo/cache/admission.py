# SPDX-License-Identifier: Apache-2.0
"""What a new sequence finds in the cache, and whether the rest of its table can be had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from octavo.cache.block_pool import BlockPool
from octavo.cache.cache_key import CacheKey
from octavo.cache.pins import Pins
from octavo.cache.prefix_index import Match, Node, PrefixIndex
from octavo.cache.results import AllocStatus
from octavo.cache.window import Window


class Fit(NamedTuple):
    """A table that could be made now: blocks to share, part of one to copy, fresh ones."""

    nodes: tuple[Node, ...]
    partial: Node | None
    num_partial_tokens: int
    num_cached_tokens: int
    num_hidden: int  # leading blocks of those found that nobody needs: it sees not so far back
    num_new_blocks: int
    status: AllocStatus


class AdmissionDesk:
    """Compares what a prompt needs with what there is. Changes nothing."""

    def __init__(self, pool: BlockPool, index: PrefixIndex, pins: Pins, window: Window) -> None:
        self._pool = pool
        self._index = index
        self._pins = pins
        self._window = window

    def fit(
        self,
        key: CacheKey,
        token_ids: Sequence[int],
        num_tokens: int,
        *,
        num_kept_back: int,
    ) -> Fit:
        """A table for ``num_tokens`` that leaves ``num_kept_back`` blocks available.

        The last token is never taken from the cache: somebody needs its logits.
        """
        match = self._index.match(key, token_ids, len(token_ids) - 1)
        size = self._index.block_size
        num_blocks = -(-num_tokens // size)
        num_shared = len(match.nodes)
        num_hidden = self._window.num_hidden(num_shared * size)
        num_new = max(0, num_blocks - num_shared)
        # What is shared may be among the cached blocks, which then cannot also be handed out.
        available = self._pool.num_available - sum(
            self._pool.is_cached(node.block_id) for node in match.nodes[num_hidden:]
        )
        if not self._can_copy(match, num_new, available - num_kept_back):
            match = Match(match.nodes, None, 0)
        if match.partial is not None:
            num_new = max(1, num_new)  # a block to copy into
        status = AllocStatus.OK
        if num_new > 0 and num_new + num_kept_back > available:
            num_held = max(num_blocks, num_shared) - num_hidden
            status = self._later_or_never(match.nodes[num_hidden:], num_held)
        num_cached = num_shared * size + match.num_partial_tokens
        return Fit(*match, num_cached, num_hidden, num_new, status)

    def _can_copy(self, match: Match, num_new: int, available: int) -> bool:
        """The source of a copy is kept until the copy is done. In a pool that is nearly full that
        one block may be what is missing: better to compute a few tokens again than never to start.
        """
        if match.partial is None:
            return False
        return max(1, num_new) + self._pool.is_cached(match.partial.block_id) <= available

    def _later_or_never(self, nodes: tuple[Node, ...], num_blocks: int) -> AllocStatus:
        matched = {node.block_id for node in nodes}
        num_usable = self._pool.num_blocks - (self._window.size is not None)  # the null block
        if num_blocks > num_usable - self._pins.num_apart_from(matched):
            return AllocStatus.NEVER
        return AllocStatus.LATER
