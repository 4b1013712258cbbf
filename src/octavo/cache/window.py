# SPDX-License-Identifier: Apache-2.0
"""What a model that sees only so far back has no more use for."""

from __future__ import annotations

NO_LIMIT = 2**62


class Window:
    """A token at position p sees the positions in (p - size, p], in every layer; size None sees
    all of them. A block that no token still to be computed sees is *hidden*. O(1) each.
    """

    def __init__(self, size: int | None, block_size: int) -> None:
        if size is not None and size < 1:
            raise ValueError(f"window must be >= 1, got {size}")
        self.size = size
        self._block_size = block_size

    def num_hidden(self, num_tokens: int) -> int:
        """Leading blocks that no position from ``num_tokens`` on sees."""
        if self.size is None:
            return 0
        return max(0, num_tokens - self.size + 1) // self._block_size

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that a sequence of ``num_tokens`` holds when its last one is computed alone."""
        return -(-num_tokens // self._block_size) - self.num_hidden(max(0, num_tokens - 1))

    @property
    def num_blocks_max(self) -> int | None:
        """Blocks that a sequence which computes token by token holds at most; None: no bound.

        What is seen starts anywhere in a block, and the next token may begin one.
        """
        if self.size is None:
            return None
        return -(-(self.size - 1) // self._block_size) + 2

    def chunk_max(self, num_blocks: int) -> int:
        """Tokens that may be computed at once, so that a sequence which has a pool of
        ``num_blocks`` to itself always goes on, however long it is: what is seen stays, and the
        chunk must fit beside it. A pool too small for that admits only what fits whole.
        """
        most = self.num_blocks_max
        if most is None or most >= num_blocks:
            return NO_LIMIT
        return (num_blocks - most) * self._block_size
