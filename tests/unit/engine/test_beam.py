# SPDX-License-Identifier: Apache-2.0
"""The choosing, against a second implementation that keeps whole tables of scores."""

from __future__ import annotations

import math
import random

import pytest

from octavo.engine.beam import BeamSearch
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest

VOCAB = 6
Model = dict[tuple[int, ...], list[float]]
MINUS_INFINITY = -1e9


def random_model(rng: random.Random, max_tokens: int) -> Model:
    """Logprobs of the next token after every answer shorter than ``max_tokens``."""
    model: Model = {}
    frontier: list[tuple[int, ...]] = [()]
    for _ in range(max_tokens):
        for tokens in frontier:
            weights = [rng.random() ** 3 + 1e-3 for _ in range(VOCAB)]
            model[tokens] = [math.log(weight / sum(weights)) for weight in weights]
        frontier = [(*tokens, token) for tokens in frontier for token in range(VOCAB)]
    return model


def search(model: Model, params: BeamSearchParams, ends: frozenset[int]) -> list[tuple[int, ...]]:
    searching = BeamSearch(params, max_tokens=params.max_tokens, end_ids=ends)
    beams: list[tuple[int, ...]] = [()]
    while beams:
        offers = []
        for beam in beams:
            ranked = sorted(enumerate(model[beam]), key=lambda pair: -pair[1])
            offers.append(ranked[: searching.num_offers])
        branches = searching.advance(offers)
        beams = [(*beams[branch.parent_idx], branch.token_id) for branch in branches]
    return [answer.token_ids for answer in searching.answers()]


def reference(
    model: Model, params: BeamSearchParams, ends: frozenset[int]
) -> list[tuple[int, ...]]:
    """With a full table: ``width`` beams from the start, all but one impossible, every score
    penalised by hand, and finished answers in slots that begin empty."""
    width, penalty = params.beam_width, params.length_penalty
    running = [((), 0.0)] + [((), MINUS_INFINITY)] * (width - 1)
    done: list[tuple[tuple[int, ...], float, bool]] = [((), MINUS_INFINITY, False)] * width
    hopeful = True
    for length in range(1, params.max_tokens + 1):
        table = [
            ((*tokens, token), total + logprob)
            for tokens, total in running
            for token, logprob in enumerate(model[tokens])
        ]
        table.sort(key=lambda entry: -entry[1])
        table = table[: max(2, 1 + len(ends)) * width]
        hits = [length == params.max_tokens or tokens[-1] in ends for tokens, _ in table]
        full = all(is_done for _, _, is_done in done)
        for rank, ((tokens, total), hit) in enumerate(zip(table, hits, strict=True)):
            possible = hit and rank < width and hopeful
            if possible and not (full and params.early_stopping is True):
                done.append((tokens, total / length**penalty, True))
        done = sorted(done, key=lambda entry: -entry[1])[:width]
        running = [entry for entry, hit in zip(table, hits, strict=True) if not hit][:width]
        if not running:
            break
        full = all(is_done for _, _, is_done in done)
        far = params.early_stopping == "never" and penalty > 0
        best = running[0][1] / (params.max_tokens if far else length) ** penalty
        hopeful = best > (min(score for _, score, _ in done) if full else MINUS_INFINITY)
        if not hopeful or (full and params.early_stopping is True):
            break
    return [tokens for tokens, _, is_done in done if is_done]


@pytest.mark.parametrize("seed", range(60))
def test_it_finds_what_the_table_finds(seed: int) -> None:
    rng = random.Random(seed)
    params = BeamSearchParams(
        beam_width=rng.randint(1, 4),
        max_tokens=rng.randint(1, 5),
        length_penalty=rng.choice([-1.0, 0.0, 0.5, 1.0, 2.0]),
        early_stopping=rng.choice([True, False, "never"]),
    )
    ends = frozenset(rng.sample(range(VOCAB), rng.choice([0, 1, 2])))
    model = random_model(rng, params.max_tokens)
    assert search(model, params, ends) == reference(model, params, ends)


def test_a_wide_search_that_never_stops_early_finds_the_likeliest_answer() -> None:
    model = random_model(random.Random(1), 3)
    params = BeamSearchParams(
        beam_width=60, max_tokens=3, length_penalty=0.0, early_stopping="never"
    )
    best = max(
        (model[()][a] + model[(a,)][b] + model[(a, b)][c], (a, b, c))
        for a in range(VOCAB)
        for b in range(VOCAB)
        for c in range(VOCAB)
    )
    assert search(model, params, frozenset())[0] == best[1]


def test_the_three_ways_to_stop_differ() -> None:
    """Found by trying seeds: the parameters matter, so the comparison above compares something."""
    answers = set()
    for stopping in (True, False, "never"):
        params = BeamSearchParams(
            beam_width=2,
            max_tokens=4,
            length_penalty=1.5,
            early_stopping=stopping,  # type: ignore[arg-type]
        )
        found = [
            tuple(search(random_model(random.Random(seed), 4), params, frozenset({0})))
            for seed in range(40)
        ]
        answers.add(tuple(found))
    assert len(answers) == 3


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("beam_width", 0),
        ("beam_width", 65),
        ("max_tokens", 0),
        ("length_penalty", float("nan")),
        ("early_stopping", "sometimes"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(param: str, value: object) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        BeamSearchParams(**{param: value})  # type: ignore[arg-type]
    assert refusal.value.param == param
