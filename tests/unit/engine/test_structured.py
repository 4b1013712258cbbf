# SPDX-License-Identifier: Apache-2.0
"""Grammars in the engine: each sequence obeys its own, whatever happens to it and beside it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import count

import pytest

from enginekit import greedy, make_engine, run_all, run_one
from fakes import ByteTokenizer, EchoExecutor
from octavo.engine.chaos import Chaos
from octavo.engine.engine import Engine
from octavo.types.env import ChaosRates
from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence
from octavo.types.structured_outputs import StructuredOutputs

PLATE = StructuredOutputs(regex="[A-Z]{2}-[0-9]{4}")
PAIR = StructuredOutputs(
    json={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    closes_in_time=True,
)
LETTERS = StructuredOutputs(regex="([a-z]{3},)*[a-z]{3}", closes_in_time=True)


def drawn(seed: int = 1, **fields: object) -> SamplingParams:
    return SamplingParams(temperature=1.0, seed=seed, **fields)  # type: ignore[arg-type]


def finals(engine: Engine) -> dict[str, list[str]]:
    outputs = [output for output in run_all(engine) if output.finished]
    return {output.request_id: [sample.text for sample in output.outputs] for output in outputs}


def test_an_answer_obeys_its_grammar_and_ends_with_it():
    output = run_one(make_engine(), params=greedy(60, structured_outputs=PLATE))
    (sample,) = output.outputs
    assert sample.finish_reason == "stop"
    assert len(sample.token_ids) == 7  # the end is not sampled: nothing else could have been
    assert ByteTokenizer().decode(sample.token_ids) == sample.text
    letters, digits = sample.text.split("-")
    assert letters.isupper()
    assert digits.isdigit()


@pytest.mark.parametrize("depth", [1, 2])
def test_every_sample_has_a_way_of_its_own(depth):
    engine = make_engine(EchoExecutor(depth=depth))
    engine.add_request("many", "hello", drawn(n=5, max_tokens=40, structured_outputs=PLATE))
    engine.add_request("free", "hello", greedy(20))
    texts = finals(engine)["many"]
    assert len(set(texts)) > 1
    for text in texts:
        assert len(text) == 7
        assert text[2] == "-"


def test_others_keep_the_pipeline_full_while_a_constrained_sequence_waits_for_its_token():
    engine = make_engine(EchoExecutor(depth=2))
    engine.add_request("free", "hello", greedy(24))
    engine.add_request("bound", "hello", greedy(24, structured_outputs=PLATE))
    run_all(engine)
    plans = engine._executor.plans  # type: ignore[attr-defined]
    rows = [len(plan.work) for plan in plans]
    assert 1 in rows[2:12]
    assert 2 in rows[2:12]


def check_agrees(seq: Sequence) -> None:
    """The grammar is where the sequence's tokens lead, but for one that is being closed: which
    tokens were turned down is not to be seen in those that are there."""
    request = seq.group.request
    assert request.grammar is not None
    assert seq.constraint is not None
    if seq.constraint.was_cut:
        return
    closes = request.params.structured_outputs.closes_in_time
    again = request.grammar.start(num_tokens_max=request.max_tokens if closes else None)
    for token_id in seq.output_token_ids:
        again.accept(token_id)
    assert again.allowed() == seq.constraint.allowed()


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_state_survives_preemption(mode):
    """Memory for one at a time: each answer is the one that a request alone gets."""
    wishes = {"plate": PLATE, "pair": PAIR, "letters": LETTERS}

    def params(name: str) -> SamplingParams:
        return drawn(seed=len(name), max_tokens=40, structured_outputs=wishes[name])

    alone = {}
    for name in wishes:
        alone[name] = run_one(make_engine(), name * 3, params(name)).outputs[0].text
    executor = EchoExecutor(num_blocks=10, num_swap_blocks=32 if mode == "swap" else 0, depth=2)
    engine = make_engine(executor, preemption_mode=mode, admission_reserve="none")
    for name in wishes:
        engine.add_request(name, name * 3, params(name))
    texts: dict[str, list[str]] = {}
    for turn in count():
        if not engine.has_unfinished():
            break
        running = [*engine._scheduler.running]
        if running and turn % 3 == 0:
            engine._scheduler.force_preempt(running[turn % len(running)])
        for output in engine.step():
            if output.finished:
                texts[output.request_id] = [sample.text for sample in output.outputs]
        engine.check()
        for group in engine.groups.values():
            check_agrees(*group.sequences)
    assert engine.stats().preemptions_total > 5
    assert {name: text for name, (text,) in texts.items()} == alone


def test_an_answer_closes_before_its_tokens_run_out():
    shortest = len('{"a":0,"b":"x"}')
    for max_tokens in (shortest, shortest + 1, shortest + 3, 40):
        for seed in range(6):
            params = drawn(seed=seed, max_tokens=max_tokens, structured_outputs=PAIR)
            (sample,) = run_one(make_engine(), params=params).outputs
            value = json.loads(sample.text)
            assert value["b"] in ("x", "yy")
            assert type(value["a"]) is int
            assert len(sample.token_ids) <= max_tokens
            assert sample.finish_reason in ("stop", "length")


def test_what_cannot_be_closed_in_time_is_refused():
    engine = make_engine()
    with pytest.raises(InvalidRequest, match="takes 15 or more") as error:
        engine.add_request("short", "hello", greedy(14, structured_outputs=PAIR))
    assert error.value.param == "max_tokens"


def test_a_cut_answer_says_length():
    """The rule never says the end, so only the lack of tokens can bring it."""
    engine = make_engine(EchoExecutor(rule=lambda tokens, sampling: ord(",")))
    (sample,) = run_one(engine, params=greedy(13, structured_outputs=LETTERS)).outputs
    assert sample.finish_reason == "length"
    assert all(len(word) == 3 for word in sample.text.split(","))


def test_stop_ids_are_allowed_only_where_the_grammar_may_end():
    """The rule always says the end of sequence; the grammar must be complete first."""
    engine = make_engine(EchoExecutor(rule=lambda tokens, sampling: 257))
    wish = StructuredOutputs(regex="[a-c]{4,}")
    output = run_one(engine, params=greedy(20, structured_outputs=wish))
    assert len(output.outputs[0].text) == 4
    assert output.outputs[0].finish_reason == "stop"


def test_without_end_of_sequence_the_answer_goes_on():
    engine = make_engine(EchoExecutor(rule=lambda tokens, sampling: 257))
    wish = StructuredOutputs(regex="[a-c]{4,}")
    params = greedy(20, structured_outputs=wish, ignore_eos=True)
    (sample,) = run_one(engine, params=params).outputs
    assert len(sample.text) == 20
    assert sample.finish_reason == "length"


def test_the_callers_own_stop_ids_count_as_ends():
    engine = make_engine(EchoExecutor(rule=lambda tokens, sampling: ord("b")))
    wish = StructuredOutputs(regex="[a-c]{4,}")
    params = greedy(20, structured_outputs=wish, stop_token_ids=(ord("b"),))
    (sample,) = run_one(engine, params=params).outputs
    assert sample.text == "cccc"
    assert sample.stop_reason == ord("b")


class FailingConstraint:
    """Allows everything, and fails at its third token."""

    was_cut = False
    is_complete = False

    def __init__(self) -> None:
        self.num_tokens = 0

    def allowed(self) -> bytes:
        return b"\xff" * 32 + b"\x07"

    def accept(self, token_id: int) -> int:
        self.num_tokens += 1
        if self.num_tokens == 3:
            raise RuntimeError("too many states")
        return token_id


def test_a_grammar_that_fails_hurts_only_its_request():
    engine = make_engine()
    engine.add_request("bad", "hello", greedy(20, structured_outputs=PLATE))
    engine.add_request("good", "hello", greedy(20))
    (seq,) = engine.groups["bad"].sequences
    seq.constraint = FailingConstraint()
    outputs = {output.request_id: output for output in run_all(engine) if output.finished}
    assert outputs["bad"].outputs[0].finish_reason == "error"
    assert "too many states" in str(outputs["bad"].error)
    assert len(outputs["good"].outputs[0].token_ids) == 20


def test_a_token_that_was_not_allowed_is_an_error_of_its_request():
    """A data plane without masks: the answer must not silently break its grammar."""

    class Deaf(EchoExecutor):
        def _answer(self, work, errors):
            return super()._answer(replace(work, allowed=b""), errors)

    output = run_one(make_engine(Deaf()), params=greedy(20, structured_outputs=PLATE))
    assert output.outputs[0].finish_reason == "error"
    assert "does not allow it" in str(output.error)


def test_costs_are_in_the_stats():
    engine = make_engine()
    run_one(engine, params=greedy(60, structured_outputs=PLATE))
    stats = engine.stats()
    assert (stats.grammars_compiled_total, stats.grammar_masks_total) == (1, 8)
    assert 0 < stats.grammar_mask_s_total
    assert stats.cut_answers_total == 0


@pytest.mark.parametrize("seed", range(8))
def test_random_histories(seed):
    """Samples with grammars beside samples without, too little memory, faults on purpose, steps two
    at a time: each text is the one that its request gets alone."""
    chance = random.Random(seed)
    wishes = [None, PLATE, PAIR, LETTERS]

    def params(number: int) -> SamplingParams:
        many = 1 + number % 3
        wish = wishes[number % len(wishes)]
        return drawn(seed=number, n=many, max_tokens=18 + number, structured_outputs=wish)

    def prompt(number: int) -> list[int]:
        return [number % 3] * (3 + 2 * number)

    alone = {}
    for number in range(8):
        output = run_one(make_engine(), prompt(number), params(number))
        alone[str(number)] = [sample.token_ids for sample in output.outputs]
    engine = make_engine(
        EchoExecutor(num_blocks=24, num_swap_blocks=chance.choice([0, 24]), depth=2),
        chaos=Chaos(ChaosRates(preempt=0.3, swapfail=0.2), chance),
        admission_reserve="none",
    )
    for number in range(8):
        engine.add_request(str(number), prompt(number), params(number))
    got = {
        output.request_id: [sample.token_ids for sample in output.outputs]
        for output in run_all(engine)
        if output.finished
    }
    assert engine.stats().preemptions_total > 0
    assert got == alone


@pytest.mark.parametrize("depth", [1, 2])
def test_a_row_that_was_turned_down_begins_anew_with_the_true_history(depth):
    """Penalties look at what the row has sampled, and it has sampled a token that nobody got."""
    executor = EchoExecutor(depth=depth)
    engine = make_engine(executor)
    wish = StructuredOutputs(
        json={"type": ["null", "string"], "minLength": 20}, closes_in_time=True
    )
    engine.add_request("free", "hello", greedy(30))
    mild = 1.1  # the echo keeps a history for it, and shifts by 0.1 * 8 = 0 ids a token
    engine.add_request(
        "bound", "hello", greedy(12, structured_outputs=wish, repetition_penalty=mild)
    )
    executor._rule = lambda tokens, sampling: ord('"')  # opens a string that is too long
    outputs = {output.request_id: output for output in run_all(engine) if output.finished}
    assert outputs["bound"].outputs[0].text == "null"
    openings = [row for plan in executor.plans for row in plan.opened]
    assert [row.num_computed for row in openings] == [0, 0, 5]
    assert [row.sampling.repetition_penalty for row in openings[1:]] == [mild, mild]


def test_a_request_with_a_grammar_is_still_a_value():
    admission = make_engine().admission
    requests = [
        admission.admit("hello", greedy(60, structured_outputs=PLATE), request_id=name)
        for name in "ab"
    ]
    assert len(set(requests)) == 2
    assert "LLMatcher" not in repr(requests)
