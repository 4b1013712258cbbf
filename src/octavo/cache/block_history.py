# SPDX-License-Identifier: Apache-2.0
"""What last happened to each block, to find a wrong reference in minutes instead of days."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple


class Transition(NamedTuple):
    """One operation on one block."""

    owner: int | None  # sequence; None when the cache itself acted (pins, resets, repairs)
    operation: str  # admit, hit, grow, copy, fork, publish, slide, truncate, free, ...
    step_id: int  # the last step submitted at that time


class BlockHistory:
    """The last few transitions of every block. For debugging: about 100 bytes per transition."""

    def __init__(self, num_kept: int = 16) -> None:
        if num_kept < 1:
            raise ValueError(f"num_kept must be >= 1, got {num_kept}")
        self._num_kept = num_kept
        self._rings: dict[int, deque[Transition]] = {}

    def record(
        self, block_ids: Iterable[int], owner: int | None, operation: str, step_id: int
    ) -> None:
        transition = Transition(owner, operation, step_id)
        for block_id in block_ids:
            ring = self._rings.get(block_id)
            if ring is None:
                ring = self._rings[block_id] = deque(maxlen=self._num_kept)
            ring.append(transition)

    def of(self, block_id: int) -> tuple[Transition, ...]:
        """Oldest first."""
        return tuple(self._rings.get(block_id, ()))
