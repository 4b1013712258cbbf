# SPDX-License-Identifier: Apache-2.0
"""Beam search against that of transformers, in two parts.

The choosing alone, over the reference's own logprobs, must find the same answers with the same
scores in every case. The reference adds in float32: 24 additions to sums below 128, each rounded
by at most 2^-18 = 4e-6, and each logprob was recorded to 5e-7; both together are at most
24 * 4.5e-6 = 1.1e-4 and, as roundings are as often up as down, a few 1e-5.

The engine computes with 8-bit activations. ``LOGPROB_BOUND`` of ``test_golden`` is five standard
deviations of one logprob's error; errors at different tokens being independent, a sum of n is off
by the root of n times as much, and a score by that over length ** length_penalty. The same
arithmetic gives what rounding may do to the difference of two candidates, of which only the tokens
count that they do not share. The golden file has, of each case, the smallest gap of any decision
in units of that bound. Above three of the five deviations, where rounding turns one decision in 700
and a case has less than 20, of which one or two are that close, the engine must find the same
answers in the same order. Such cases are short: of the beams that a step could choose, the fourth
and the fifth are seldom further apart than rounding errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_golden import LOGPROB_BOUND

from modelkit import finish, open_engine
from octavo.assemble import Assembled
from octavo.engine.beam import BeamSearch, Offer
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import SamplingParams

SCORE_ROUNDING = 1e-4
CLEAR = 3 / 5
Case = tuple[dict[str, Any], dict[str, Any]]  # a search of the golden file, and one of its cases
Change = Callable[[BeamSearchParams], BeamSearchParams]


@pytest.fixture(scope="module")
def golden_cases(data_dir: Path) -> list[Case]:
    golden = json.loads((data_dir / "golden" / "beam_search.json").read_text())
    return [(search, case) for search in golden["searches"] for case in search["cases"]]


@pytest.fixture(scope="module")
def assembled(smollm2_path: Path) -> Iterator[Assembled]:
    with open_engine(smollm2_path) as opened:
        yield opened


def unchanged(params: BeamSearchParams) -> BeamSearchParams:
    return params


def params_of(search: dict[str, Any], case: dict[str, Any]) -> BeamSearchParams:
    return BeamSearchParams(
        beam_width=search["beam_width"],
        max_tokens=search["max_tokens"],
        length_penalty=case["length_penalty"],
        early_stopping=case["early_stopping"],
        end_token_ids=tuple(search["end_token_ids"]),
    )


def expected(search: dict[str, Any], case: dict[str, Any]) -> list[tuple[tuple[int, ...], float]]:
    return [(tuple(search["answers"][idx]), score) for idx, score in case["answers"]]


def replay(search: dict[str, Any], params: BeamSearchParams) -> tuple[BeamSearch, int | None]:
    """The search over the recorded offers, and after how many steps it ended; None where its beams
    were not the reference's."""
    ends = frozenset(search["end_token_ids"])
    searching = BeamSearch(params, max_tokens=search["max_tokens"], end_ids=ends)
    for num_steps, step in enumerate(search["steps"], 1):
        offers: list[Offer] = [
            [(token, logprob) for beam, token, logprob in step["offers"] if beam == idx]
            for idx in range(searching.num_beams)
        ]
        branches = searching.advance(offers)
        if not branches:
            return searching, num_steps
        if [[branch.parent_idx, branch.token_id] for branch in branches] != step["going_on"]:
            return searching, None
    return searching, None  # as many steps as tokens: it ends by itself


def is_exact(search: dict[str, Any], case: dict[str, Any], change: Change = unchanged) -> bool:
    searching, num_steps = replay(search, change(params_of(search, case)))
    answers = searching.answers()
    wanted = expected(search, case)
    return (
        num_steps is not None
        and [answer.token_ids for answer in answers] == [token_ids for token_ids, _ in wanted]
        and all(
            abs(answer.score - score) < SCORE_ROUNDING
            for answer, (_, score) in zip(answers, wanted, strict=True)
        )
    )


def test_the_choosing_is_the_references_in_every_case(golden_cases: list[Case]):
    wrong = [params_of(*pair) for pair in golden_cases if not is_exact(*pair)]
    assert len(golden_cases) == 144
    assert not wrong


def test_the_cases_end_in_every_way(golden_cases: list[Case]):
    """Answers that end early and that do not, in searches that go to the last step or stop."""
    kinds = set()
    for search, case in golden_cases:
        _, num_steps = replay(search, params_of(search, case))
        assert num_steps is not None
        lengths = {len(token_ids) for token_ids, _ in expected(search, case)}
        kinds.add((num_steps < search["max_tokens"], min(lengths) < search["max_tokens"]))
    assert kinds == {(False, False), (False, True), (True, True)}


@pytest.mark.parametrize(
    ("field", "right", "wrong"),
    [
        ("length_penalty", 1.0, 0.0),
        ("length_penalty", 0.5, 0.0),
        ("length_penalty", 2.0, 0.0),
        ("length_penalty", 0.0, 1.0),
        ("early_stopping", True, False),
        ("early_stopping", True, "never"),
        ("early_stopping", False, True),
        ("early_stopping", False, "never"),
        ("early_stopping", "never", True),
        ("early_stopping", "never", False),
    ],
)
def test_one_parameter_taken_for_another_is_caught(
    golden_cases: list[Case], field: str, right: object, wrong: object
):
    def plant(params: BeamSearchParams) -> BeamSearchParams:
        return replace(params, **{field: wrong})  # type: ignore[arg-type]

    concerned = [pair for pair in golden_cases if pair[1][field] == right]
    assert concerned
    assert not all(is_exact(*pair, plant) for pair in concerned)


def run_searches(
    assembled: Assembled, cases: list[Case], change: Change = unchanged
) -> list[RequestOutput]:
    for idx, (search, case) in enumerate(cases):
        params = change(params_of(search, case))
        assembled.engine.add_request(str(idx), list(search["prompt_ids"]), params)
    done: dict[str, RequestOutput] = {}
    while assembled.engine.has_unfinished():
        done.update((output.request_id, output) for output in assembled.engine.step())
    return [done[str(idx)] for idx in range(len(cases))]


def other_ids(assembled: Assembled, cases: list[Case], change: Change = unchanged) -> list[str]:
    """Where the engine's answers, or their scores, are not those of a clear case."""
    wrong = []
    for pair, output in zip(cases, run_searches(assembled, cases, change), strict=True):
        wanted, penalty = expected(*pair), pair[1]["length_penalty"]
        if [sample.token_ids for sample in output.outputs] != [ids for ids, _ in wanted]:
            wrong.append(f"{params_of(*pair)}: other answers")
            continue
        for sample, (token_ids, score) in zip(output.outputs, wanted, strict=True):
            assert sample.score is not None
            if abs(sample.score - score) > score_bound(len(token_ids), penalty):
                wrong.append(f"{params_of(*pair)}: {sample.score}, not {score}")
    return wrong


def score_bound(length: int, penalty: float) -> float:
    return LOGPROB_BOUND * math.sqrt(length) / float(length**penalty)


def clear(cases: list[Case]) -> list[Case]:
    return [pair for pair in cases if pair[1]["clearness"] > CLEAR]


def logprobs_of(
    assembled: Assembled, answers: list[tuple[list[int], tuple[int, ...]]]
) -> list[float]:
    """The engine's own sums of logprobs of (prompt, answer)."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
    prompts = [prompt + list(token_ids) for prompt, token_ids in answers]
    sums = []
    outputs = finish(assembled, prompts, [params] * len(prompts))
    for (prompt, token_ids), output in zip(answers, outputs, strict=True):
        assert output.prompt_logprobs is not None
        entries = output.prompt_logprobs[len(prompt) :]
        sums.append(sum(e[t].logprob for e, t in zip(entries, token_ids, strict=True) if e))
    return sums


@pytest.mark.model
def test_the_engine_finds_the_references_answers_where_decisions_are_clear(
    assembled: Assembled, golden_cases: list[Case]
):
    cases = clear(golden_cases)
    assert {search["beam_width"] for search, _ in cases} == {2, 4}
    assert len(cases) > len(golden_cases) / 2
    assert not other_ids(assembled, cases)


@pytest.mark.model
def test_ending_tokens_ignored_are_caught(assembled: Assembled, golden_cases: list[Case]):
    cases = clear(golden_cases)
    assert other_ids(assembled, cases, lambda params: replace(params, ignore_eos=True))


@pytest.mark.model
def test_a_length_penalty_ignored_is_caught(assembled: Assembled, golden_cases: list[Case]):
    cases = clear(golden_cases)
    assert other_ids(assembled, cases, lambda params: replace(params, length_penalty=0.0))


@pytest.mark.model
def test_the_engine_scores_every_answer_as_the_reference(
    assembled: Assembled, golden_cases: list[Case]
):
    """All answers of all cases, clear or not."""
    keys = {
        (tuple(search["prompt_ids"]), token_ids)
        for search, case in golden_cases
        for token_ids, _ in expected(search, case)
    }
    answers = [(list(prompt), token_ids) for prompt, token_ids in sorted(keys)]
    sums = dict(zip(sorted(keys), logprobs_of(assembled, answers), strict=True))
    for search, case in golden_cases:
        penalty = case["length_penalty"]
        for token_ids, score in expected(search, case):
            length = len(token_ids)
            ours = sums[tuple(search["prompt_ids"]), token_ids] / length**penalty
            assert ours == pytest.approx(score, abs=score_bound(length, penalty), rel=0)


@pytest.mark.model
def test_a_score_is_what_the_answers_tokens_add_up_to(
    assembled: Assembled, golden_cases: list[Case]
):
    """Also where the search goes its own way: forks and shared blocks must not change a logprob."""
    cases = [
        (search, case)
        for search, case in golden_cases
        if case["early_stopping"] == "never" and case["length_penalty"] == 1.0
    ]
    found = [
        (list(search["prompt_ids"]), sample)
        for (search, _), output in zip(cases, run_searches(assembled, cases), strict=True)
        for sample in output.outputs
    ]
    sums = logprobs_of(assembled, [(prompt, sample.token_ids) for prompt, sample in found])
    for (_, sample), total in zip(found, sums, strict=True):
        assert sample.score == pytest.approx(total / len(sample.token_ids), abs=SCORE_ROUNDING)


@pytest.mark.parametrize("penalty", [-30.0, 30.0, 30, -30])
@pytest.mark.parametrize("stopping", [True, False, "never"])
def test_no_length_penalty_leaves_the_range_of_a_float(penalty: float, stopping: Any):
    params = BeamSearchParams(
        beam_width=2, max_tokens=2**31 - 1, length_penalty=penalty, early_stopping=stopping
    )
    search = BeamSearch(params, max_tokens=params.max_tokens, end_ids=frozenset({0}))
    for _ in range(2000):
        if not search.advance([[(1, -0.1), (0, -0.2), (2, -9.0)]] * search.num_beams):
            break
    assert all(math.isfinite(answer.score) for answer in search.answers())


@pytest.mark.parametrize(
    ("field", "value"),
    [("length_penalty", 30.5), ("early_stopping", 1), ("end_token_ids", (2, -1))],
)
def test_what_the_search_would_take_for_something_else_is_refused(field: str, value: object):
    with pytest.raises(InvalidRequest) as refusal:
        BeamSearchParams(**{field: value})  # type: ignore[arg-type]
    assert refusal.value.param == field
