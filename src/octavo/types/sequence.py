# SPDX-License-Identifier: Apache-2.0
"""Sequences, the groups they belong to, and the states that they pass through."""

from __future__ import annotations

from enum import Enum

from octavo.types.errors import CorruptState
from octavo.types.outputs import FinishReason, RequestMetrics
from octavo.types.request import Request
from octavo.types.step import RowSampling


class SequenceStatus(Enum):
    WAITING = "waiting"  # never ran
    RUNNING = "running"  # has a row and blocks
    PREEMPTED = "preempted"  # ran, gave its row and blocks back, waits to compute them again
    FINISHED = "finished"  # has neither; final


# Every edge of the state machine. What is not here is a bug.
LEGAL_EDGES: dict[SequenceStatus, frozenset[SequenceStatus]] = {
    SequenceStatus.WAITING: frozenset({SequenceStatus.RUNNING, SequenceStatus.FINISHED}),
    SequenceStatus.RUNNING: frozenset({SequenceStatus.PREEMPTED, SequenceStatus.FINISHED}),
    SequenceStatus.PREEMPTED: frozenset({SequenceStatus.RUNNING, SequenceStatus.FINISHED}),
    SequenceStatus.FINISHED: frozenset(),
}


class Sequence:
    """One sample of a request. Owned by the scheduler thread.

    Its positions, as half-open intervals::

        [0, num_computed)              in the KV cache, confirmed by a result
        [num_computed, num_planned)    in steps submitted and not yet collected
        [num_planned, num_tokens)      known, to be computed
        [num_tokens, num_expected)     sampled by submitted steps: the worker has them already

    num_given   tokens that were known when the row was opened: a plan spells these out, and every
                later one is the row's own sample
    epoch       changes whenever the row is given up, so that a late result can be told
    num_scored  prompt positions whose logprob is known, of the first num_to_score
    """

    __slots__ = (
        "epoch",
        "finish_reason",
        "group",
        "num_computed",
        "num_given",
        "num_inflight_samples",
        "num_planned",
        "num_prompt",
        "num_scored",
        "num_to_score",
        "num_tokens_max",
        "row",
        "sampling",
        "seq_id",
        "status",
        "stop_reason",
        "token_ids",
    )

    def __init__(self, seq_id: int, group: SequenceGroup, sampling: RowSampling) -> None:
        request = group.request
        self.seq_id = seq_id
        self.group = group
        self.sampling = sampling
        self.status = SequenceStatus.WAITING
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt = len(request.prompt_token_ids)
        self.num_tokens_max = request.num_tokens_max
        self.num_computed = 0
        self.num_planned = 0
        self.num_inflight_samples = 0
        self.num_given = 0
        self.epoch = 0
        self.row: int | None = None
        # Position 0 has nothing before it, hence no logprob. Samples share their prompt: one
        # scores.
        scores = request.params.prompt_logprobs is not None and sampling.sample_idx == 0
        self.num_to_score = self.num_prompt if scores else 0
        self.num_scored = 1
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_expected(self) -> int:
        return len(self.token_ids) + self.num_inflight_samples

    @property
    def num_outputs(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt :]

    @property
    def is_finished(self) -> bool:
        return self.status is SequenceStatus.FINISHED

    def transition(self, to: SequenceStatus) -> None:
        """The only way to change ``status``. Raises ``CorruptState`` on an illegal edge."""
        if to not in LEGAL_EDGES[self.status]:
            raise CorruptState(
                f"sequence {self.seq_id} of {self.group.request.request_id!r} cannot go"
                f" from {self.status.value} to {to.value}"
            )
        self.status = to

    def forget_row(self) -> None:
        """Nothing of this sequence is in the cache any more, and results on the way are stale."""
        self.row = None
        self.epoch += 1
        self.num_computed = self.num_planned = self.num_inflight_samples = self.num_given = 0


class SequenceGroup:
    """All samples of one request: admitted, preempted and reported together.

    ``seniority`` orders groups for service and, backwards, for preemption. It is a stored key and
    not a place in a queue, so that a group which was preempted keeps it. Times are seconds on the
    engine's clock.
    """

    __slots__ = (
        "arrival_time",
        "finished_time",
        "first_scheduled_time",
        "first_token_time",
        "last_token_time",
        "num_preemptions",
        "request",
        "seniority",
        "sequences",
    )

    def __init__(self, request: Request, *, arrival_time: float, seniority: int) -> None:
        self.request = request
        self.arrival_time = arrival_time
        self.seniority = seniority
        self.sequences: list[Sequence] = []
        self.first_scheduled_time: float | None = None
        self.first_token_time: float | None = None
        self.last_token_time: float | None = None
        self.finished_time: float | None = None
        self.num_preemptions = 0

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def is_finished(self) -> bool:
        return all(seq.is_finished for seq in self.sequences)

    @property
    def num_outputs(self) -> int:
        return sum(seq.num_outputs for seq in self.sequences)

    def metrics(self) -> RequestMetrics:
        return RequestMetrics(
            arrival_time=self.arrival_time,
            first_scheduled_time=self.first_scheduled_time,
            first_token_time=self.first_token_time,
            finished_time=self.finished_time,
            num_preemptions=self.num_preemptions,
        )
