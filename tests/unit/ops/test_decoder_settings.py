# SPDX-License-Identifier: Apache-2.0
"""Sampler settings in rows: histories that grow by themselves, masks that come with the work, and
refusals that cost one row. What each setting computes is tested natively."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tiny_decoder import LLAMA, VOCAB, Driver, by_id, make_model

from octavo.types.step import RowOpen, RowResult, RowSampling, RowWork, StepPlan

MODEL = make_model(LLAMA)
PROMPT = [3, 17, 17, 8, 30]
BIAS = ((4, 1.5), (11, -2.0))
BAD_WORDS = ((17,), (8, 8))
EDITS = RowSampling(
    presence_penalty=0.3,
    frequency_penalty=0.4,
    logit_bias=BIAS,
    bad_words=BAD_WORDS,
    num_logprobs=VOCAB,
)
ALL = RowSampling(
    temperature=0.9,
    top_k=20,
    top_p=0.95,
    min_p=0.01,
    seed=5,
    num_logprobs=3,
    banned_until=9,
    banned_ids=(1, 2),
    typical_p=0.95,
    top_n_sigma=3.0,
    repetition_penalty=1.3,
    presence_penalty=0.2,
    frequency_penalty=0.1,
    logit_bias=BIAS,
    allowed_ids=tuple(range(38)),
    bad_words=BAD_WORDS,
    has_processed_logprobs=True,
)


def opened(row: int, sampling: RowSampling, ids: Sequence[int], **more: object) -> RowOpen:
    """A row for a sequence that so far has ``ids``, which begin with the prompt."""
    history = tuple(ids) if sampling.needs_history else ()
    num_prompt = len(PROMPT) if history else 0
    fields = {"history": history, "num_prompt": num_prompt, **more}
    return RowOpen(row, sampling, **fields)  # type: ignore[arg-type]


class Rows:
    """A driver whose row 0 is opened with a history."""

    def __init__(self, sampling: RowSampling) -> None:
        self.driver = Driver(MODEL)
        self.driver.open(0, sampling)
        self.sampling = sampling
        self.driver._opened = [opened(0, sampling, PROMPT)]

    def generate(self, num_tokens: int) -> list[RowResult]:
        (first,) = self.driver.step(self.driver.work(0, PROMPT, samples=True))
        rows = [first]
        while len(rows) < num_tokens:
            rows += self.driver.step(self.driver.work(0, [], samples=True))
        return rows


def expected_token(row: RowResult, outputs: Sequence[int]) -> int:
    """The greedy choice from raw logprobs, which differ from logits by a constant."""
    assert row.logprobs is not None
    scores = by_id(row.logprobs.top)
    for token_id, bias in BIAS:
        scores[token_id] += bias
    for token_id in set(outputs):
        count = list(outputs).count(token_id)
        scores[token_id] -= count * EDITS.frequency_penalty + EDITS.presence_penalty
    for word in BAD_WORDS:
        if tuple([*outputs, word[-1]][-len(word) :]) == word:
            scores[word[-1]] = float("-inf")
    return scores.index(max(scores))


def test_a_row_remembers_what_it_has_sampled() -> None:
    rows = Rows(EDITS).generate(25)
    outputs = [row.token_id or 0 for row in rows]
    expected = [expected_token(row, outputs[:idx]) for idx, row in enumerate(rows)]
    assert outputs == expected
    forgetful = [expected_token(row, outputs[: max(0, idx - 1)]) for idx, row in enumerate(rows)]
    assert outputs != forgetful
    assert outputs != [expected_token(row, PROMPT + outputs[:idx]) for idx, row in enumerate(rows)]


@pytest.mark.parametrize("sampling", [EDITS, ALL])
def test_a_row_opened_anew_with_its_history_goes_on_the_same(sampling: RowSampling) -> None:
    """After every token: as recompute and swap do, whose rows know only what they are told."""
    straight = Rows(sampling).generate(16)
    again = Rows(sampling)
    driver = again.driver
    (first,) = driver.step(driver.work(0, PROMPT, samples=True))
    rows, ids = [first], [*PROMPT, first.token_id or 0]
    while len(rows) < 16:
        row = len(rows) % 2
        table = driver.table(1 - row)
        driver.open(row, sampling)
        driver._tables[row], driver._computed[row] = [*table], len(ids) - 1
        driver._opened = [
            opened(row, sampling, ids, num_computed=len(ids) - 1, blocks=tuple(table))
        ]
        work = driver.work(row, ids[-1:], samples=True)
        plan = StepPlan(0, closed=(1 - row,), opened=driver.take_opened(), work=(work,))
        (result,) = driver.worker.execute(plan).rows
        rows.append(result)
        ids.append(result.token_id or 0)
    assert [replace(row, row=0) for row in rows] == straight


def test_samples_of_one_prompt_keep_settings_and_histories_apart() -> None:
    settings = [replace(ALL, sample_idx=idx, presence_penalty=idx / 4) for idx in range(3)]
    alone = [[row.token_id for row in Rows(sampling).generate(8)] for sampling in settings]
    rows = Rows(settings[0])
    driver = rows.driver
    parent = driver.work(0, PROMPT, samples=True)
    end, table = len(PROMPT), parent.new_blocks
    forks = tuple(
        opened(idx, settings[idx], PROMPT, num_computed=end, blocks=table) for idx in (1, 2)
    )
    samples = tuple(RowWork(idx, end, 0, samples=True, logits_of=0) for idx in (1, 2))
    plan = StepPlan(0, opened=(*driver.take_opened(), *forks), work=(parent, *samples))
    together = [[row.token_id] for row in driver.worker.execute(plan).rows]
    for row in range(3):  # one after the other: they write to one block
        driver._tables[row], driver._computed[row] = [*table], end
    # The first goes on in the shared block; the others compute their prompt again elsewhere.
    while len(together[0]) < 8:
        (result,) = driver.step(driver.work(0, [], samples=True))
        together[0].append(result.token_id)
    assert together[0] == alone[0]
    assert [tokens[0] for tokens in together] == [tokens[0] for tokens in alone]
    assert len({tuple(tokens) for tokens in alone}) == 3


def mask_of(*ids: int) -> bytes:
    return sum(1 << token_id for token_id in ids).to_bytes((VOCAB + 7) // 8, "little")


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_mask_holds_for_its_own_work(temperature: float) -> None:
    rows = Rows(RowSampling(temperature=temperature, seed=1))
    driver = rows.driver
    seen = []
    for ids in ((9,), (0, 39), (12, 13, 14)):
        work = replace(driver.work(0, [] if seen else PROMPT, samples=True), allowed=mask_of(*ids))
        (result,) = driver.step(work)
        assert result.token_id in ids
        seen.append(result.token_id)
    (free,) = driver.step(driver.work(0, [], samples=True))
    assert free.error is None


def test_rows_and_forks_of_one_step_have_masks_of_their_own() -> None:
    driver = Driver(MODEL)
    driver.open(0, RowSampling())
    driver.open(2, RowSampling())
    parent = replace(driver.work(0, PROMPT, samples=True), allowed=mask_of(7))
    other = replace(driver.work(2, PROMPT, samples=True), allowed=mask_of(21))
    fork = RowWork(1, len(PROMPT), 0, samples=True, logits_of=0, allowed=mask_of(33))
    child = RowOpen(1, RowSampling(), len(PROMPT), parent.new_blocks)
    plan = StepPlan(0, opened=(*driver.take_opened(), child), work=(parent, fork, other))
    assert [row.token_id for row in driver.worker.execute(plan).rows] == [7, 33, 21]


BAD_SETTINGS = [
    (RowSampling(temperature=float("nan")), "temperature must be finite"),
    (RowSampling(top_p=0.0), r"top_p must be in (0, 1], got 0"),
    (RowSampling(min_p=1.5), "min_p must be in [0, 1], got 1.5"),
    (RowSampling(typical_p=1.5), "typical_p must be in (0, 1]"),
    (RowSampling(top_n_sigma=float("inf")), "top_n_sigma must be finite"),
    (RowSampling(repetition_penalty=0.0), "repetition_penalty must be finite and above 0"),
    (RowSampling(presence_penalty=float("nan")), "presence_penalty must be finite"),
    (RowSampling(frequency_penalty=float("-inf")), "frequency_penalty must be finite"),
    (RowSampling(num_logprobs=VOCAB + 1), "num_logprobs must be in [0, 40], got 41"),
    (RowSampling(num_logprobs=-1), "num_logprobs cannot be -1"),
    (RowSampling(banned_ids=(VOCAB,)), "banned_ids must be in [0, 40), got 40"),
    (RowSampling(allowed_ids=(-1,)), "allowed_ids must be in [0, 40), got -1"),
    (RowSampling(logit_bias=((VOCAB, 1.0),)), "logit_bias must be in [0, 40), got 40"),
    (RowSampling(logit_bias=((1, float("nan")),)), "logit_bias must be finite"),
    (RowSampling(bad_words=((1, VOCAB),)), "bad_words must be in [0, 40), got 40"),
]
HISTORY = RowSampling(presence_penalty=1.0)
BAD_ROWS = [
    (RowOpen(1, HISTORY, history=(1, VOCAB, 2), num_prompt=1), "history[1] must be in [0, 40)"),
    (RowOpen(1, HISTORY, history=(1, 2, 3), num_prompt=4), "num_prompt must be in [0, 4), got 4"),
    (RowOpen(1, HISTORY, history=(1, 2), num_prompt=2), "history holds 2 tokens"),
    (RowOpen(1, HISTORY), "history holds 0 tokens"),
    *((RowOpen(1, sampling, history=()), message) for sampling, message in BAD_SETTINGS),
]


@pytest.mark.parametrize(("bad", "message"), BAD_ROWS)
def test_a_refused_row_says_why_and_its_neighbours_go_on(bad: RowOpen, message: str) -> None:
    driver = Driver(MODEL)
    driver.open(0, RowSampling())
    driver.open(1)
    works = [driver.work(row, [1, 2, 3], samples=True) for row in (0, 1)]
    plan = StepPlan(0, opened=(driver.take_opened()[0], bad), work=tuple(works))
    good, refused = driver.worker.execute(plan).rows
    assert good.token_id is not None
    assert message in (refused.error or "")
    good, refused = driver.step(*(driver.work(row, [], samples=True) for row in (0, 1)))
    assert good.token_id is not None
    assert refused.error == "the row failed in an earlier step"


BAD_WORK = [
    ({"token_ids": (VOCAB,)}, "work[1].token_ids[0] must be in [0, 40), got 40"),
    ({"token_ids": (-1,)}, "work[1].token_ids[0] must be in [0, 40), got -1"),
    ({"targets": (VOCAB,)}, "work[1].targets[0] must be in [0, 40), got 40"),
    ({"allowed": b"\xff" * 4}, "work[1].allowed must have 5 bytes, got 4"),
    ({"allowed": bytes(5)}, "the settings leave no token for position 1"),
]


@pytest.mark.parametrize(("change", "message"), BAD_WORK)
def test_what_a_request_asks_of_a_work_fails_that_row(
    change: dict[str, object], message: str
) -> None:
    driver = Driver(MODEL)
    for row in range(3):
        driver.open(row, RowSampling())
    works = [driver.work(row, [5], samples=True) for row in range(3)]
    works[1] = replace(works[1], **change)  # type: ignore[arg-type]
    rows = driver.step(*works)
    assert rows[0].token_id == rows[2].token_id is not None
    assert message in (rows[1].error or "")
    fork = RowWork(3, 2, 0, samples=True, logits_of=1)
    child = RowOpen(3, RowSampling(), 2, works[1].new_blocks)
    works = [driver.work(row, [], samples=True) for row in range(3)]
    plan = StepPlan(0, opened=(child,), work=(*works, fork))
    errors = [row.error for row in driver.worker.execute(plan).rows]
    failed = "the row failed in an earlier step"
    assert errors == [None, failed, None, failed]


@pytest.mark.parametrize(
    "sampling", [RowSampling(repetition_penalty=1 + 1e-12), RowSampling(presence_penalty=1e-60)]
)
def test_a_penalty_too_small_for_float32_is_none(sampling: RowSampling) -> None:
    plain = Rows(RowSampling()).generate(4)
    assert [row.token_id for row in Rows(sampling).generate(4)] == [row.token_id for row in plain]
