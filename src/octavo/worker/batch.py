# SPDX-License-Identifier: Apache-2.0
"""A ``StepPlan`` as the flat arrays of the native call, and its outcomes as a ``StepResult``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.ops.decoder import FlatBatch
from octavo.types.step import (
    RowOpen,
    RowResult,
    RowSampling,
    StepPlan,
    StepResult,
    TokenLogprobs,
)


class ScoredToken(Protocol):
    """A token as the sampler reports it; rank 0 says that no logprob was asked for."""

    @property
    def token_id(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def rank(self) -> int: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


class Outcome(Protocol):
    @property
    def sampled(self) -> ScoredToken | None: ...
    @property
    def scored(self) -> Sequence[ScoredToken]: ...
    @property
    def error(self) -> str: ...


def flatten(plan: StepPlan) -> FlatBatch:
    """O(tokens that travel)."""
    token_ids: list[int] = []
    new_blocks: list[int] = []
    targets: list[int] = []
    replaced: list[tuple[int, int]] = []
    for work in plan.work:
        token_ids += work.token_ids
        new_blocks += work.new_blocks
        targets += work.targets
        replaced += work.replaced
    return FlatBatch(
        closed=plan.closed,
        opened=plan.opened,
        copies=[(copy.src, copy.dst, copy.num_tokens) for copy in plan.copies],
        work=[
            (
                work.row,
                work.start,
                work.num_tokens,
                len(work.token_ids),
                len(work.new_blocks),
                len(work.targets),
                work.samples,
                len(work.replaced),
                work.logits_of,
                len(work.allowed),
            )
            for work in plan.work
        ],
        token_ids=token_ids,
        new_blocks=new_blocks,
        targets=targets,
        replaced=replaced,
        swap_ins=plan.swap_ins,
        swap_outs=plan.swap_outs,
        allowed=b"".join([work.allowed for work in plan.work]),
    )


def flatten_rows(plan: StepPlan, num_rows: int) -> FlatBatch:
    """Which rows a plan closes, opens and works on, and nothing else: what is left of one that
    failed, and cannot be wrong in any other number. Rows that do not exist are left out.
    """
    rows = range(num_rows)
    return FlatBatch(
        closed=[row for row in plan.closed if row in rows],
        opened=[RowOpen(row.row, RowSampling()) for row in plan.opened if row.row in rows],
        copies=(),
        work=[
            (work.row, 0, 0, 0, 0, 0, False, 0, None, 0) for work in plan.work if work.row in rows
        ],
        token_ids=(),
        new_blocks=(),
        targets=(),
    )


def to_result(
    plan: StepPlan, outcomes: Sequence[Outcome], compute_s: float, swap_s: float = 0.0
) -> StepResult:
    """Outcomes follow ``plan.work``, one each."""
    rows = tuple(
        _row_result(work.row, outcome) for work, outcome in zip(plan.work, outcomes, strict=True)
    )
    return StepResult(step_id=plan.step_id, rows=rows, compute_s=compute_s, swap_s=swap_s)


def _row_result(row: int, outcome: Outcome) -> RowResult:
    if outcome.error:
        return RowResult(row=row, error=outcome.error)
    sampled = outcome.sampled
    return RowResult(
        row=row,
        token_id=None if sampled is None else sampled.token_id,
        logprobs=None if sampled is None or sampled.rank == 0 else _logprobs(sampled),
        scored=tuple(_logprobs(token) for token in outcome.scored),
    )


def _logprobs(token: ScoredToken) -> TokenLogprobs:
    return TokenLogprobs(
        token_id=token.token_id, logprob=token.logprob, rank=token.rank, top=tuple(token.top)
    )
