# SPDX-License-Identifier: Apache-2.0
"""Random lives of sequences in the block manager, beside an oracle made of dictionaries.

Run for a night with ``pytest --hypothesis-profile=nightly``.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase

from cache_machine import BlockManagerMachine
from cache_machine_variants import CollidingMachine, FrequencyMachine
from octavo.cache.block_pool import BlockPool
from octavo.types.errors import CorruptState
from transitions import run_machine


def test_every_life_is_as_the_oracle_says() -> None:
    run_machine(BlockManagerMachine, 15_000)


def test_nobody_is_served_the_blocks_of_a_colliding_digest() -> None:
    run_machine(CollidingMachine, 4_000)


def test_the_other_eviction_policy_keeps_the_same_accounts() -> None:
    run_machine(FrequencyMachine, 4_000)


def test_a_planted_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fences a block is handed out while a step may still write to it."""
    monkeypatch.setattr(BlockPool, "use", lambda pool, block_ids: None)
    with pytest.raises((AssertionError, CorruptState)):
        run_machine(BlockManagerMachine, 20_000, phases=[Phase.generate])
