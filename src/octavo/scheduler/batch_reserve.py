# SPDX-License-Identifier: Apache-2.0
"""Room that is never given to whoever has all the time in the world."""

from __future__ import annotations

import math

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.queues import RankedQueue
from octavo.types.config import SchedulerConfig
from octavo.types.request import ServiceClass
from octavo.types.sequence import SequenceGroup


class BatchReserve:
    """The last blocks and seats, which groups of the batch class leave to the others: so somebody
    who waits for an answer starts at once, however much batch work there is.

    A group that runs alone may have everything, or a large one would wait for ever for what nobody
    else wants; a more urgent one then takes its blocks as usual.
    """

    def __init__(self, blocks: BlockManager, running: RankedQueue, config: SchedulerConfig) -> None:
        self._running = running
        self._num_blocks = math.ceil(config.batch_reserve * blocks.num_blocks)
        self._num_seats = math.ceil(config.batch_reserve * config.max_num_seqs)

    def num_blocks(self, group: SequenceGroup) -> int:
        """Blocks that must stay available when ``group`` is given any."""
        return self._num_blocks if self._num_blocks and self._is_bound(group) else 0

    def num_seats(self, group: SequenceGroup) -> int:
        """Seats that must stay free when ``group`` starts."""
        return self._num_seats if self._num_seats and self._is_bound(group) else 0

    def _is_bound(self, group: SequenceGroup) -> bool:
        if group.request.service_class is not ServiceClass.BATCH or not self._running:
            return False
        return len(self._running) > 1 or self._running.first is not group
