# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from grammarkit import allowed_ids, allows, compiled
from octavo.types.errors import CorruptState


def test_the_mask_has_a_bit_for_every_id_and_none_beyond():
    constraint = compiled(regex="(.|\\n)*").start()
    mask = constraint.allowed()
    assert len(mask) == 33
    assert mask[32] == 0b110  # 257 and 258 end, 256 begins and is no text, 259 and on are nobody's


def test_stops_are_allowed_exactly_when_the_grammar_may_end():
    constraint = compiled(regex="[ab]{2,3}").start()
    for is_end in (False, False, True):
        assert allows(constraint, 257) is is_end
        assert allows(constraint, 258) is is_end
        assert not allows(constraint, 256)
        assert not constraint.is_complete
        constraint.accept(97)
    assert constraint.is_complete
    assert allowed_ids(constraint) == [257, 258]
    assert not constraint.was_cut


def test_a_stop_ends_it():
    constraint = compiled(regex="[ab]+").start()
    constraint.accept(97)
    assert constraint.accept(258) == 258
    assert constraint.is_complete


def test_without_stop_ids_a_text_just_goes_on():
    constraint = compiled(regex="[ab]+", stop_ids=frozenset()).start()
    constraint.accept(97)
    assert allowed_ids(constraint) == [97, 98]


def test_a_stop_that_is_also_a_word():
    """Byte 98 ends the answer for its caller. It may be said where the text may end, and where
    there is no other way on."""
    constraint = compiled(regex="(a|b)b(a|b)", stop_ids=frozenset({98})).start()
    assert allowed_ids(constraint) == [97]
    constraint.accept(97)
    assert allowed_ids(constraint) == [98]
    constraint.accept(98)
    assert allowed_ids(constraint) == [97]
    constraint.accept(97)
    assert allowed_ids(constraint) == [98]


@pytest.mark.parametrize("token_id", [99, 257, 256, 300, -1])
def test_what_was_not_allowed_is_our_bug(token_id):
    constraint = compiled(regex="[ab]+").start()
    with pytest.raises(CorruptState, match="does not allow it"):
        constraint.accept(token_id)


def test_two_sequences_do_not_know_of_each_other():
    grammar = compiled(regex="a[xy]|b[z]")
    first, second = grammar.start(), grammar.start()
    first.accept(97)
    second.accept(98)
    assert allowed_ids(first) == [120, 121]
    assert allowed_ids(second) == [122]
    assert allowed_ids(grammar.start()) == [97, 98]


def test_costs_are_counted():
    grammar = compiled(regex="[ab]{4}")
    constraint = grammar.start()
    for _ in range(4):
        constraint.accept(97)
    stats = grammar.stats
    assert stats.num_masks == 5
    assert 0 < stats.mask_s_max <= stats.mask_s
    assert stats.accept_s > 0
