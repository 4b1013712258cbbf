# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.window import NO_LIMIT, Window


def sees(position: int, window: int) -> range:
    return range(max(0, position - window + 1), position + 1)


@pytest.mark.parametrize("window", [1, 2, 7, 8, 9, 20])
@pytest.mark.parametrize("block_size", [1, 4, 8])
def test_hidden_is_what_no_later_position_sees(window: int, block_size: int) -> None:
    one = Window(window, block_size)
    for num_tokens in range(60):
        first = min(p for later in range(num_tokens, 70) for p in sees(later, window))
        assert one.num_hidden(num_tokens) == first // block_size


@pytest.mark.parametrize("window", [1, 2, 7, 8, 9, 20])
def test_a_sequence_holds_what_its_last_token_sees(window: int) -> None:
    one = Window(window, 4)
    for num_tokens in range(1, 60):
        blocks = {p // 4 for p in sees(num_tokens - 1, window)}
        assert one.num_blocks_for(num_tokens) == len(blocks)
        assert one.num_blocks_max is not None
        assert len(blocks) < one.num_blocks_max


def test_a_chunk_fits_beside_what_is_seen() -> None:
    one = Window(8, 8)
    assert one.num_blocks_max == 3
    assert one.chunk_max(3) == NO_LIMIT  # such a pool takes only what fits whole
    assert one.chunk_max(4) == 8
    assert one.chunk_max(12) == 72


def test_without_a_window_nothing_is_hidden() -> None:
    everything = Window(None, 8)
    assert everything.num_hidden(10**9) == 0
    assert everything.num_blocks_for(17) == 3
    assert everything.num_blocks_max is None
    assert everything.chunk_max(1) == NO_LIMIT


def test_a_window_sees_at_least_its_own_position() -> None:
    with pytest.raises(ValueError, match="window must be >= 1, got 0"):
        Window(0, 8)
