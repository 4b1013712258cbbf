# SPDX-License-Identifier: Apache-2.0
"""A ``StepPlan`` as the flat arrays of the native call, and its outcomes as a ``StepResult``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.ops.decoder import FlatBatch
from octavo.types.errors import StepFailed
from octavo.types.step import RowResult, StepPlan, StepResult, TokenLogprobs


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
    """O(tokens that travel). Raises ``StepFailed`` for swaps, which need a swap tier."""
    if plan.swap_ins or plan.swap_outs:
        raise StepFailed(
            f"step {plan.step_id} swaps {len(plan.swap_ins)} blocks in and "
            f"{len(plan.swap_outs)} out, but this worker has no swap tier"
        )
    token_ids: list[int] = []
    new_blocks: list[int] = []
    targets: list[int] = []
    for work in plan.work:
        token_ids += work.token_ids
        new_blocks += work.new_blocks
        targets += work.targets
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
            )
            for work in plan.work
        ],
        token_ids=token_ids,
        new_blocks=new_blocks,
        targets=targets,
    )


def to_result(plan: StepPlan, outcomes: Sequence[Outcome], compute_s: float) -> StepResult:
    """Outcomes follow ``plan.work``, one each."""
    rows = tuple(
        _row_result(work.row, outcome) for work, outcome in zip(plan.work, outcomes, strict=True)
    )
    return StepResult(step_id=plan.step_id, rows=rows, compute_s=compute_s)


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
