# SPDX-License-Identifier: Apache-2.0
"""What is done now and then, beside the steps: leaked blocks are found, and the pool is summed up.

Nothing should ever leak. If something does, it is a bug of ours: it is logged with the names of
what was found, and the memory comes back instead of being lost until the next restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from octavo.cache.audit import Orphan
from octavo.cache.block_manager import BlockManager
from octavo.engine.trace import Trace
from octavo.metrics.engine_metrics import EngineMetrics
from octavo.types.config import RuntimeConfig
from octavo.types.ports import Clock

logger = logging.getLogger(__name__)

SHOWN_HOLDERS = 3
SHOWN_FAULTS = 10

ShowLive = Callable[[], set[int]]


class Upkeep:
    """Runs in the engine's thread, between two steps. Costs a look at the clock when nothing is
    due, and a walk over all blocks when something is."""

    def __init__(
        self,
        blocks: BlockManager,
        metrics: EngineMetrics,
        config: RuntimeConfig,
        clock: Clock,
        trace: Trace,
    ) -> None:
        self._blocks = blocks
        self._trace = trace
        self._metrics = metrics
        self._clock = clock
        self._lease_s = config.block_lease_s
        self._reclaim = Interval(config.reclaim_interval_s, clock())
        self._summary = Interval(config.block_audit_interval_s, clock())

    @property
    def interval_s(self) -> float | None:
        """Seconds between two runs that are of use; None when all is turned off."""
        wanted = [one.seconds for one in (self._reclaim, self._summary) if one.seconds > 0]
        return min(wanted, default=None)

    def run(self, live_seq_ids: ShowLive) -> None:
        """``live_seq_ids`` gives the sequences that may hold blocks; called only when due."""
        now = self._clock()
        if self._reclaim.is_due(now):
            self._reclaim_leaks(live_seq_ids(), now)
        if self._summary.is_due(now):
            self._log_summary()

    def _reclaim_leaks(self, live_seq_ids: set[int], now: float) -> None:
        found = self._blocks.reclaim(live_seq_ids, now_s=now, lease_s=self._lease_s)
        self._metrics.reclaimed_blocks_total += found.num_blocks
        if found.seq_ids:
            names = self._trace.requests_of(found.seq_ids)
            logger.error(
                "took back the blocks of sequences that are gone: %s; their requests: %s",
                found.seq_ids,
                ", ".join(sorted(set(names.values()))) or "unknown",
            )
        for orphan in found.orphans:
            logger.error(
                "took back block %d: %d references, %d owners; last: %s",
                orphan.block_id,
                orphan.ref_count,
                orphan.num_named,
                self._past(orphan),
            )

    def _past(self, orphan: Orphan) -> str:
        """What last happened to a block, and whose doing it was."""
        names = self._trace.requests_of(t.owner for t in orphan.history if t.owner is not None)
        return ", ".join(
            f"{t.operation} by {t.owner}{f' of {names[t.owner]}' if t.owner in names else ''}"
            f" at {t.step_id}"
            for t in orphan.history
        )

    def _log_summary(self) -> None:
        """One line, and one for each fault."""
        report, usage = self._blocks.report(num_holders=SHOWN_HOLDERS), self._blocks.usage()
        if report.faults:
            self._metrics.audit_failures_total += 1
            for fault in report.faults[:SHOWN_FAULTS]:
                logger.error("KV blocks do not balance: %s", fault)
        if usage.num_free == usage.num_blocks:
            return  # an idle server should not fill its log
        logger.info(
            "KV blocks: %d free, %d cached, %d in use (%d shared, %d pinned), %d in limbo, of %d;"
            " swap: %d of %d in use; references: %s; most held by sequences: %s",
            usage.num_free,
            usage.num_cached,
            usage.num_referenced,
            usage.num_shared,
            usage.num_pinned,
            usage.num_limbo,
            usage.num_blocks,
            usage.num_swap_referenced,
            usage.num_swap_blocks,
            report.ref_histogram,
            report.top_holders,
        )


class Interval:
    """Is it time again? ``seconds`` 0: never."""

    __slots__ = ("_last", "seconds")

    def __init__(self, seconds: float, now: float) -> None:
        self.seconds = seconds
        self._last = now

    def is_due(self, now: float) -> bool:
        if self.seconds <= 0 or now - self._last < self.seconds:
            return False
        self._last = now
        return True
