# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from enginekit import greedy, make_engine, run_one
from fakes import EchoExecutor
from octavo.engine.engine import Engine
from octavo.engine.pin_board import PINS_MAX, PinBoard
from octavo.types.errors import InvalidRequest
from octavo.types.request import Standing

PROMPT = list(range(20))  # two full blocks of 8, and a half


def warm_engine(*, num_blocks: int = 64) -> Engine:
    engine = make_engine(EchoExecutor(num_blocks=num_blocks))
    run_one(engine, PROMPT, greedy(1))
    return engine


def test_a_pin_survives_a_flood_and_nothing_else_does() -> None:
    def num_cached_after_flood(*, pins: bool) -> int:
        engine, board = warm_engine(num_blocks=12), PinBoard()
        if pins:
            pin = board.pin(engine, PROMPT, "")
            assert (pin.num_tokens, pin.num_pinned_tokens) == (20, 16)
        for number in range(20):
            run_one(engine, [100 + number] * 30, greedy(1))
        return run_one(engine, PROMPT, greedy(1)).num_cached_tokens

    assert num_cached_after_flood(pins=True) == 16
    assert num_cached_after_flood(pins=False) == 0


def test_list_unpin_and_balance() -> None:
    engine, board = warm_engine(), PinBoard()
    pin = board.pin(engine, PROMPT, "")
    assert board.pin(engine, PROMPT, "").pin_id == pin.pin_id  # the same once more
    assert board.pins() == [pin]
    assert engine.stats().num_pinned_blocks == 2
    assert board.unpin(engine, pin.pin_id)
    assert not board.unpin(engine, pin.pin_id)
    assert engine.stats().num_pinned_blocks == 0
    assert board.pins() == []
    engine.check()


def test_the_salt_is_part_of_it() -> None:
    engine, board = warm_engine(), PinBoard()
    with pytest.raises(InvalidRequest, match="no full block"):
        board.pin(engine, PROMPT, "salt")
    engine.add_request("s", PROMPT, greedy(1), standing=Standing(cache_salt="salt"))
    while engine.has_unfinished():
        engine.step()
    salted = board.pin(engine, PROMPT, "salt")
    assert board.pin(engine, PROMPT, "").pin_id != salted.pin_id


def test_what_was_never_computed_cannot_be_pinned() -> None:
    engine, board = warm_engine(), PinBoard()
    with pytest.raises(InvalidRequest, match="0 of 64 blocks are, and half may be"):
        board.pin(engine, [77] * 20, "")
    assert board.pins() == []


def test_a_reset_ends_all_pins() -> None:
    engine, board = warm_engine(), PinBoard()
    board.pin(engine, PROMPT, "")
    assert board.reset_prefix_cache(engine)
    assert board.pins() == []
    assert engine.stats().num_free_blocks == 64
    with pytest.raises(InvalidRequest, match="no full block"):
        board.pin(engine, PROMPT, "")


def test_what_was_given_up_is_pinned_under_another_id() -> None:
    engine, board = warm_engine(), PinBoard()
    first = board.pin(engine, PROMPT, "")
    assert board.unpin(engine, first.pin_id)
    second = board.pin(engine, PROMPT, "")
    assert second.pin_id != first.pin_id
    engine.blocks.reset_prefix_cache()  # behind the board's back, as the scheduler may
    with pytest.raises(InvalidRequest, match="no full block"):
        board.pin(engine, PROMPT, "")
    assert board.pins() == []
    run_one(engine, PROMPT, greedy(1))
    assert board.pin(engine, PROMPT, "").pin_id not in (first.pin_id, second.pin_id)


def test_there_is_a_last_pin() -> None:
    engine, board = warm_engine(), PinBoard()
    pin = board.pin(engine, PROMPT, "")
    board._pins |= dict.fromkeys(map(str, range(PINS_MAX)), pin)
    run_one(engine, [50] * 20, greedy(1))
    with pytest.raises(InvalidRequest, match=f"{PINS_MAX} pins already"):
        board.pin(engine, [50] * 20, "")


def test_a_reset_may_take_what_runs_too() -> None:
    answers = []
    for resets in (False, True):
        engine, board = warm_engine(), PinBoard()
        engine.add_request("a", PROMPT, greedy(9))
        outputs = engine.step()
        if resets:
            assert not board.reset_prefix_cache(engine)  # it holds what the reset has forgotten
            assert board.reset_prefix_cache(engine, preempt_running=True)
            engine.check()
            assert engine.stats().num_running == 0
            assert engine.stats().num_free_blocks == 64
        while engine.has_unfinished():
            outputs += engine.step()
        answers.append(outputs[-1].outputs[0].token_ids)
    assert answers[0] == answers[1]
    assert len(answers[0]) == 9
