# SPDX-License-Identifier: Apache-2.0
"""What the step being planned does to which block, as far as the order within a step matters."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.types.errors import CorruptState
from octavo.types.step import BlockCopy


class StepOrder:
    """A step swaps, then copies, then computes. So it cannot swap out what it copies, nor copy what
    it computes; the first is refused, the second is a bug of whoever plans.
    """

    def __init__(self) -> None:
        self._copied_into: set[int] = set()
        self._computed_from: dict[int, int] = {}  # block -> first slot that the step computes

    def copy(self, src: int, dst: int, num_tokens: int) -> BlockCopy:
        if num_tokens > self._computed_from.get(src, num_tokens):
            raise CorruptState(f"block {src} is copied in the step that computes it: too early")
        self._copied_into.add(dst)
        return BlockCopy(src, dst, num_tokens)

    def compute(self, block_id: int, first_slot: int) -> None:
        first_so_far = self._computed_from.get(block_id, first_slot)
        self._computed_from[block_id] = min(first_so_far, first_slot)

    def forget(self, block_id: int) -> None:
        """Given up before the step was submitted: the block's next owner has computed nothing."""
        self._computed_from.pop(block_id, None)

    def copies_into(self, block_ids: Iterable[int]) -> bool:
        """Whether any of these blocks is filled by a copy of this step."""
        return not self._copied_into.isdisjoint(block_ids)

    def clear(self) -> None:
        """The step is planned; the next one begins."""
        self._copied_into.clear()
        self._computed_from.clear()
