# SPDX-License-Identifier: Apache-2.0
"""Physical blocks of the KV cache: who holds them, and when they may be handed out again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from octavo.types.errors import CorruptState


class BlockPool:
    """Hands out fixed-size blocks and counts references. Pure bookkeeping: no tensors, no I/O.

    Every block is in exactly one of three places, and ``check`` proves it::

        num_free + num_limbo + num_referenced == num_blocks

    *Limbo* is the step fence: a block whose last reference went away while steps are in flight may
    still be read or written by them. It becomes free when the newest of those steps has completed.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks must be >= 1, got {num_blocks}")
        self.num_blocks = num_blocks
        # A stack: the block freed last is the one most likely still in a CPU cache.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._refs = [0] * num_blocks
        self._limbo: deque[tuple[int, list[int]]] = deque()  # (step that must complete, blocks)
        self._num_limbo = 0
        self._submitted_step_id = 0
        self._completed_step_id = 0

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_limbo(self) -> int:
        return self._num_limbo

    @property
    def num_referenced(self) -> int:
        return self.num_blocks - len(self._free) - self._num_limbo

    def ref_count(self, block_id: int) -> int:
        return self._refs[block_id]

    def take(self, count: int) -> list[int] | None:
        """``count`` blocks with one reference each, or None, having changed nothing.

        Running out is an everyday event that the scheduler answers by preempting.
        """
        if count > len(self._free):
            return None
        if count == 0:
            return []
        taken = self._free[-count:]
        taken.reverse()
        for block_id in taken:
            if self._refs[block_id] != 0:
                raise CorruptState(
                    f"block {block_id} is free but has {self._refs[block_id]} references"
                )
        del self._free[-count:]
        for block_id in taken:
            self._refs[block_id] = 1
        return taken

    def share(self, block_ids: Iterable[int]) -> None:
        """One more reference to each block, all of which must be held by someone already."""
        for block_id in block_ids:
            if self._refs[block_id] < 1:
                raise CorruptState(f"block {block_id} is shared but nobody holds it")
            self._refs[block_id] += 1

    def release(self, block_ids: Sequence[int]) -> None:
        """Give up one reference to each block, last block first. Raises ``CorruptState`` on a
        double free.
        """
        unheld = []
        for block_id in reversed(block_ids):
            refs = self._refs[block_id] - 1
            if refs < 0:
                raise CorruptState(f"block {block_id} is released but has no references")
            self._refs[block_id] = refs
            if refs == 0:
                unheld.append(block_id)
        if self._completed_step_id == self._submitted_step_id:
            self._free += unheld
        elif unheld:
            self._limbo.append((self._submitted_step_id, unheld))
            self._num_limbo += len(unheld)

    def step_submitted(self, step_id: int) -> None:
        """Blocks released from now on may be in use until this step completes."""
        if step_id <= self._submitted_step_id:
            raise CorruptState(f"step {step_id} submitted after step {self._submitted_step_id}")
        self._submitted_step_id = step_id

    def step_completed(self, step_id: int) -> None:
        """This step, and so every earlier one, touches nothing any more."""
        if not self._completed_step_id < step_id <= self._submitted_step_id:
            raise CorruptState(
                f"step {step_id} completed, but {self._completed_step_id} had and"
                f" {self._submitted_step_id} was the last submitted"
            )
        self._completed_step_id = step_id
        while self._limbo and self._limbo[0][0] <= step_id:
            blocks = self._limbo.popleft()[1]
            self._num_limbo -= len(blocks)
            self._free += blocks

    def check(self, tables: Iterable[Sequence[int]]) -> None:
        """Raise ``CorruptState`` unless the account balances. O(blocks): for tests and idle time.

        ``tables`` are all block tables: a block's references are the entries that name it.
        """
        entries = [0] * self.num_blocks
        for table in tables:
            for block_id in table:
                entries[block_id] += 1
        for block_id, (refs, named) in enumerate(zip(self._refs, entries, strict=True)):
            if refs != named:
                raise CorruptState(
                    f"block {block_id} has {refs} references, tables name it {named} times"
                )
        limbo = [block_id for _, blocks in self._limbo for block_id in blocks]
        referenced = sum(refs > 0 for refs in self._refs)
        total = len(self._free) + len(limbo) + referenced
        places = {*self._free, *limbo, *(i for i, refs in enumerate(self._refs) if refs > 0)}
        if total != self.num_blocks or len(places) != total or len(limbo) != self._num_limbo:
            raise CorruptState(
                f"{len(self._free)} free + {len(limbo)} limbo + {referenced} referenced blocks,"
                f" {len(places)} of them different, of {self.num_blocks}"
            )
