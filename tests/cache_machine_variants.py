# SPDX-License-Identifier: Apache-2.0
"""The block manager's state machine with other digests and evictions."""

from __future__ import annotations

from cache_machine import BlockManagerMachine
from octavo.cache.block_manager import BlockManager
from octavo.cache.prefix_index import chain_digest


def weak_digest(parent: bytes, tokens: bytes) -> bytes:
    """Two bits: nearly everything collides."""
    return chain_digest(parent, tokens)[:1].translate(bytes(i % 4 for i in range(256)))


class CollidingBlocks(BlockManager):
    digest = staticmethod(weak_digest)


class CollidingMachine(BlockManagerMachine):
    """With a digest of two bits nobody may be served somebody else's keys and values."""

    blocks = CollidingBlocks
    digest = staticmethod(weak_digest)

    def expect_published(self, seq_id: int) -> None:
        """Whether it is depends on who came first; what is found must be right all the same."""


class FrequencyMachine(BlockManagerMachine):
    eviction = "s3fifo"
