# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.step_order import StepOrder
from octavo.types.errors import CorruptState
from octavo.types.step import BlockCopy


def test_slots_before_those_that_the_step_computes_may_be_copied() -> None:
    order = StepOrder()
    order.compute(1, 3)
    order.compute(1, 5)
    assert order.copy(1, 2, 3) == BlockCopy(1, 2, 3)
    with pytest.raises(CorruptState, match="block 1 is copied in the step that computes it"):
        order.copy(1, 4, 4)
    order.clear()
    assert order.copy(1, 4, 4) == BlockCopy(1, 4, 4)


def test_blocks_filled_by_a_copy_are_known_until_the_step_is_planned() -> None:
    order = StepOrder()
    order.copy(1, 2, 1)
    assert order.copies_into([0, 2])
    assert not order.copies_into([0, 1])
    order.clear()
    assert not order.copies_into([2])


def test_what_was_to_be_computed_in_a_block_that_was_given_up_does_not_matter() -> None:
    order = StepOrder()
    order.compute(3, 0)
    order.forget(3)
    assert order.copy(3, 4, 2) == BlockCopy(3, 4, 2)
