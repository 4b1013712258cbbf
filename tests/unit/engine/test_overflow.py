# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.engine.overflow import AdmissionLimits, truncate
from octavo.types.sampling_params import OnOverflow

LEFT, MIDDLE, RIGHT = (
    OnOverflow.TRUNCATE_LEFT,
    OnOverflow.TRUNCATE_MIDDLE,
    OnOverflow.TRUNCATE_RIGHT,
)


def blocks_needed(num_prompt: int, num_answer: int, num_samples: int, block_size: int) -> int:
    """By counting: full prompt blocks once, and for each sample every block after them."""
    num_shared = num_prompt // block_size
    total = -(-(num_prompt + num_answer) // block_size)
    return num_shared + num_samples * (total - num_shared)


@pytest.mark.parametrize("num_samples", [1, 2, 3, 5])
@pytest.mark.parametrize("num_blocks", [1, 4, 9])
def test_the_answer_room_is_the_most_that_fits(num_blocks: int, num_samples: int) -> None:
    limits = AdmissionLimits(10**6, num_blocks * 8, 8)
    for num_prompt in range(1, 90):
        room = limits.answer_room(num_prompt, num_samples)
        fits = [
            m for m in range(1, 100) if blocks_needed(num_prompt, m, num_samples, 8) <= num_blocks
        ]
        assert max(room, 0) == max(fits, default=0)


def test_a_model_that_forgets_needs_room_for_its_window_only() -> None:
    """Each sequence holds at most three blocks, and a chunk takes one more."""
    limits = AdmissionLimits(1000, 9 * 8, 8, num_window_blocks=3)
    assert limits.num_tokens_max == 1000
    for num_samples in (1, 2):
        assert limits.answer_room(300, num_samples) == 700
        assert limits.prompt_room(100, num_samples) == 900
    kept = AdmissionLimits(1000, 9 * 8, 8)
    assert limits.answer_room(30, 3) == kept.answer_room(30, 3)
    tight = AdmissionLimits(1000, 3 * 8, 8, num_window_blocks=3)
    assert tight.num_tokens_max == 24
    assert tight.answer_room(20, 1) == 4


def test_the_answer_room_ends_with_the_context() -> None:
    assert AdmissionLimits(20, 800, 8).answer_room(15, 3) == 5
    assert AdmissionLimits(20, 800, 8).answer_room(25, 3) == -5


@pytest.mark.parametrize("num_samples", [1, 2, 5])
@pytest.mark.parametrize("num_answer", [1, 7, 8, 9, 20])
def test_the_prompt_room_leaves_room_for_the_answer(num_answer: int, num_samples: int) -> None:
    limits = AdmissionLimits(150, 128, 8)
    length = limits.prompt_room(num_answer, num_samples)
    if length >= 1:
        assert limits.answer_room(length, num_samples) >= num_answer
        assert limits.answer_room(length + 8, num_samples) < num_answer


@pytest.mark.parametrize(
    ("policy", "length", "expected"),
    [
        (LEFT, 4, (9, 5, 6, 7)),  # 9 begins the sequence: it stays
        (LEFT, 1, (7,)),
        (MIDDLE, 4, (9, 1, 6, 7)),
        (MIDDLE, 5, (9, 1, 2, 6, 7)),
        (MIDDLE, 1, (9,)),
        (RIGHT, 4, (9, 1, 2, 3)),
        (RIGHT, 1, (9,)),
    ],
)
def test_a_cut_keeps_its_end_of_the_prompt(
    policy: OnOverflow, length: int, expected: tuple[int, ...]
) -> None:
    assert truncate((9, 1, 2, 3, 4, 5, 6, 7), length, policy, bos_token_id=9) == expected


def test_without_a_begin_of_sequence_the_left_cut_keeps_the_end_alone() -> None:
    assert truncate((1, 2, 3, 4), 2, LEFT, bos_token_id=None) == (3, 4)
    assert truncate((1, 2, 3, 4), 2, LEFT, bos_token_id=9) == (3, 4)


def test_half_of_everything_stays_prompt() -> None:
    limits = AdmissionLimits(100, 800, 8)
    assert limits.cut_length(10, 1) == 90
    assert limits.cut_length(None, 1) == 75
    assert limits.cut_length(500, 1) == 50
