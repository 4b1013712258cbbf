# SPDX-License-Identifier: Apache-2.0
"""What a sequence keeps when its tail must give blocks back."""

from __future__ import annotations

import pytest

from cachekit import KEY, admit_and_run, make, tokens


@pytest.mark.parametrize(
    ("num_wanted", "kept"), [(0, 16), (1, 16), (2, 12), (4, 4), (5, 0), (9, 0)]
)
def test_as_many_blocks_as_are_wanted_come_from_the_tail(num_wanted: int, kept: int) -> None:
    """17 tokens in five blocks of four: the last block is not full and is not kept in any case."""
    manager = make()
    admit_and_run(manager, 1, tokens(17))
    assert manager.num_tokens_to_keep(1, num_wanted, 17) == kept
    manager.truncate(1, kept)
    assert manager.usage().num_referenced == kept // 4
    manager.check({1})


def test_blocks_that_others_hold_bring_nothing() -> None:
    manager = make(num_blocks=12)
    admit_and_run(manager, 1, tokens(16))
    manager.fork(1, 2)
    assert manager.grow(1, 24, write_from=16) is not None
    assert manager.num_tokens_to_keep(1, 2, 16) == 16
    assert manager.num_tokens_to_keep(1, 3, 16) == 0  # it has no third block of its own


def test_only_what_is_computed_is_kept() -> None:
    manager = make()
    manager.admit(1, KEY, tokens(16), num_tokens=16)
    manager.step_submitted(1)
    assert manager.num_tokens_to_keep(1, 1, 0) == 0
    assert manager.num_tokens_to_keep(1, 1, 9) == 8


def test_what_is_still_to_be_copied_is_not_kept() -> None:
    manager = make(num_blocks=12)
    admit_and_run(manager, 1, tokens(8))
    admission = manager.admit(2, KEY, [*tokens(6), 50, 51, 52, 53], num_tokens=10)
    assert admission is not None
    assert (len(admission.copies), admission.num_cached_tokens) == (1, 6)
    assert manager.num_tokens_to_keep(2, 1, 10) == 4
    manager.step_submitted(2)
    assert manager.num_tokens_to_keep(2, 1, 10) == 4
    manager.step_completed(2)
    assert manager.num_tokens_to_keep(2, 1, 10) == 8
