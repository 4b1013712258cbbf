# SPDX-License-Identifier: Apache-2.0
"""What would come back if a sequence gave up some of its blocks, or all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from octavo.cache.block_pool import BlockPool
from octavo.cache.block_table import BlockTable


class Holdings:
    """Looks at tables and counts; changes nothing. O(blocks of the tables)."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size

    def num_exclusive(self, tables: Sequence[BlockTable]) -> int:
        """Blocks that nothing but these tables references."""
        named = Counter(block_id for table in tables for block_id in table.ids)
        return sum(self._pool.ref_count(block_id) == count for block_id, count in named.items())

    def num_tokens_to_keep(self, table: BlockTable, num_wanted: int, num_computed: int) -> int:
        """How much stays, in whole blocks, when the tail gives back ``num_wanted`` blocks, if it
        has so many that are nobody else's.

        Of what stays, everything is computed: among the first ``num_computed`` tokens, and not
        still to be copied or swapped in by a step that may yet fail.
        """
        num_kept = len(table.ids)
        while num_kept > 0 and num_wanted > 0:
            num_kept -= 1
            num_wanted -= self._pool.ref_count(table.ids[num_kept]) == 1
        num_kept = min(num_kept, num_computed // self._block_size)
        for idx, block_id in enumerate(table.ids[:num_kept]):
            if not self._pool.is_settled(block_id):
                return idx * self._block_size
        return num_kept * self._block_size
