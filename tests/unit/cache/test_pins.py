# SPDX-License-Identifier: Apache-2.0
"""Pins and resets, through the block manager."""

from __future__ import annotations

from cachekit import KEY, admit_and_run, make, run, tokens
from octavo.cache.block_manager import AllocStatus


def test_a_pinned_template_outlives_every_flood() -> None:
    manager = make(num_blocks=8)
    admit_and_run(manager, 1, tokens(9))
    assert manager.pin(KEY, tokens(9)) == 8
    manager.free(1)
    assert manager.usage().num_pinned == 2
    for seq_id in range(2, 6):
        admit_and_run(manager, seq_id, tokens(24, first=100 * seq_id))
        manager.free(seq_id)
    assert manager.probe(KEY, tokens(9)).num_cached_tokens == 8
    assert manager.probe(KEY, tokens(28, first=900)).status is AllocStatus.NEVER
    assert manager.unpin(KEY, tokens(9))
    assert not manager.unpin(KEY, tokens(9))
    admit_and_run(manager, 9, tokens(32, first=900))
    assert manager.probe(KEY, tokens(9)).num_cached_tokens == 0


def test_at_most_half_of_all_blocks_are_pinned_and_only_what_is_computed() -> None:
    manager = make(num_blocks=8)
    assert manager.pin(KEY, tokens(8)) == 0
    admit_and_run(manager, 1, tokens(24))
    assert manager.pin(KEY, tokens(24)) == 16
    assert manager.pin(KEY, tokens(24)) == 16  # replaces the first
    manager.free(1)
    manager.check(set())
    assert manager.unpin(KEY, tokens(24))
    assert manager.usage().num_referenced == 0


def test_reset_forgets_everything_and_silences_who_lives() -> None:
    manager = make()
    admit_and_run(manager, 1, tokens(8))
    manager.pin(KEY, tokens(8))
    assert not manager.reset_prefix_cache()  # 1 still holds its blocks
    assert manager.probe(KEY, tokens(8)).num_cached_tokens == 0
    manager.grow(1, 12, write_from=8)
    run(manager, 1, tokens(12))
    assert manager.probe(KEY, tokens(13)).num_cached_tokens == 0  # computed from old content
    manager.free(1)
    assert manager.usage().num_free == 8
    admit_and_run(manager, 2, tokens(8))
    manager.free(2)
    assert manager.reset_prefix_cache()
    assert manager.usage().num_free == 8
    manager.check(set())
