# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.block_history import BlockHistory, Transition


def test_the_last_few_transitions_are_kept_oldest_first() -> None:
    history = BlockHistory(num_kept=2)
    history.record([3], 1, "admit", 0)
    history.record([3, 4], None, "pin", 1)
    history.record([3], 1, "free", 2)
    assert history.of(3) == (Transition(None, "pin", 1), Transition(1, "free", 2))
    assert history.of(4) == (Transition(None, "pin", 1),)
    assert history.of(5) == ()
    with pytest.raises(ValueError, match="got 0"):
        BlockHistory(0)
