# SPDX-License-Identifier: Apache-2.0
"""Faults on purpose, so that what happens once in a month is tested every day.

No fault may change an answer, except that its own request ends: a preempted one samples the same
tokens again, a failed swap falls back to computing. A lost abort ends with its lease, and a lost
reference is found by the audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

from octavo.cache.block_manager import BlockManager, Moves
from octavo.types.env import ChaosRates
from octavo.types.errors import StepFailed
from octavo.types.ports import Executor
from octavo.types.step import StepPlan, StepResult

T = TypeVar("T")


class Chaos:
    """Draws the faults. The same source and the same calls give the same faults."""

    def __init__(self, rates: ChaosRates, source: Random) -> None:
        self.rates = rates
        self._source = source

    def victim(self, candidates: Sequence[T], rate: float) -> T | None:
        """One of the candidates with probability ``rate``, else None."""
        if not self.strikes(rate) or not candidates:
            return None
        return candidates[self._source.randrange(len(candidates))]

    def strikes(self, rate: float) -> bool:
        return rate > 0.0 and self._source.random() < rate

    def swap_fails(self) -> bool:
        return self.strikes(self.rates.swapfail)

    def abort_is_lost(self) -> bool:
        return self.strikes(self.rates.dropabort)


class FailingBlocks(BlockManager):
    """A block manager to which the swap pool now and then seems full, and which forgets now and
    then to give a reference up."""

    chaos: Chaos | None = None  # set once it is made

    def plan_swap_out(self, seq_ids: Sequence[int]) -> Moves | None:
        if self.chaos is not None and self.chaos.swap_fails():
            return None
        return super().plan_swap_out(seq_ids)

    def free(self, seq_id: int) -> None:
        table = self.table(seq_id)
        if table is not None and self.chaos is not None:
            if self.chaos.strikes(self.chaos.rates.lostref):
                self._pool.share(table.ids[:1])
        super().free(seq_id)


class FailingExecutor:
    """An executor some of whose steps fail after they have run: nobody may use what they gave."""

    def __init__(self, inner: Executor, chaos: Chaos) -> None:
        self._inner = inner
        self._chaos = chaos

    @property
    def num_blocks(self) -> int:
        return self._inner.num_blocks

    @property
    def block_size(self) -> int:
        return self._inner.block_size

    @property
    def num_swap_blocks(self) -> int:
        return self._inner.num_swap_blocks

    @property
    def num_rows(self) -> int:
        return self._inner.num_rows

    @property
    def depth(self) -> int:
        return self._inner.depth

    def submit(self, plan: StepPlan) -> None:
        self._inner.submit(plan)

    def collect(self) -> StepResult:
        result = self._inner.collect()
        if self._chaos.strikes(self._chaos.rates.stepfail):
            raise StepFailed(f"step {result.step_id} failed on purpose (OCTAVO_CHAOS)")
        return result

    def close(self) -> None:
        self._inner.close()
