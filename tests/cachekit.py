# SPDX-License-Identifier: Apache-2.0
"""Small block managers for tests, and sequences run through them as an engine would."""

from __future__ import annotations

from octavo.cache.block_manager import BlockManager
from octavo.cache.cache_key import CacheKey

KEY = CacheKey()


def make(num_blocks: int = 8, block_size: int = 4, *, num_swap_blocks: int = 0) -> BlockManager:
    return BlockManager(num_blocks, block_size, num_swap_blocks=num_swap_blocks, watermark=0.0)


def tokens(count: int, first: int = 0) -> list[int]:
    return list(range(first, first + count))


def run(manager: BlockManager, seq_id: int, token_ids: list[int]) -> None:
    """Compute all of a sequence's tokens in one step, from what was admitted, and publish."""
    step_id = manager._pool.submitted_step_id + 1
    manager.step_submitted(step_id)
    manager.step_completed(step_id)
    manager.publish(seq_id, KEY, token_ids, len(token_ids))


def admit_and_run(manager: BlockManager, seq_id: int, token_ids: list[int]) -> tuple[int, ...]:
    admission = manager.admit(seq_id, KEY, token_ids, num_tokens=len(token_ids))
    assert admission is not None
    run(manager, seq_id, token_ids)
    return admission.blocks
