# SPDX-License-Identifier: Apache-2.0
"""What an engine makes once from its configuration, and once for each sequence."""

from __future__ import annotations

from octavo.cache.block_history import BlockHistory
from octavo.cache.block_manager import BlockManager
from octavo.engine.chaos import Chaos, FailingBlocks
from octavo.engine.overflow import AdmissionLimits
from octavo.types.config import EngineConfig
from octavo.types.errors import InvalidConfig
from octavo.types.ports import Constraint, Executor
from octavo.types.request import Request

TRANSITIONS_KEPT = 4  # per block, for the audit: some 500 bytes


def new_blocks(
    executor: Executor, config: EngineConfig, window: int | None, chaos: Chaos | None
) -> BlockManager:
    cache, model_len = config.cache, config.scheduler.max_model_len
    if executor.num_blocks < 2 or (window is not None and window >= (model_len or window)):
        window = None  # no block for the null block, or nothing to gain by one
    blocks = FailingBlocks(
        executor.num_blocks,
        executor.block_size,
        num_swap_blocks=executor.num_swap_blocks,
        prefix_caching=cache.enable_prefix_caching,
        eviction=cache.eviction_policy,
        watermark=cache.watermark,
        window=window,
        history=BlockHistory(TRANSITIONS_KEPT),
    )
    blocks.chaos = chaos
    return blocks


def admission_limits(config: EngineConfig, blocks: BlockManager) -> AdmissionLimits:
    scheduler = config.scheduler
    if scheduler.max_model_len is None:
        raise InvalidConfig("an engine needs scheduler.max_model_len as a number, got None")
    return AdmissionLimits(
        scheduler.max_model_len,
        blocks.num_slots,
        blocks.block_size,
        scheduler.max_num_seqs,
        num_window_blocks=blocks.window.num_blocks_max,
        has_priorities=scheduler.scheduling_policy in ("priority", "weighted"),
    )


def start_constraint(request: Request) -> Constraint | None:
    """Each sample comes through the grammar on its own way."""
    wish = request.params.structured_outputs
    if request.grammar is None or wish is None:
        return None
    return request.grammar.start(num_tokens_max=request.max_tokens if wish.closes_in_time else None)
