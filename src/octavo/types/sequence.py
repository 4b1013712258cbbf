# SPDX-License-Identifier: Apache-2.0
"""Sequences, the groups they belong to, and the states that they pass through."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from octavo.types.errors import CorruptState
from octavo.types.outputs import FinishReason, RequestMetrics, Timeline
from octavo.types.ports import Constraint
from octavo.types.request import Request
from octavo.types.step import RowSampling


class SequenceStatus(Enum):
    """What a sequence holds, and so where it may go.

    There are no states "swapping out" and "swapping in". Transfers are part of a step's plan and
    plans run in order, so whatever is planned later already sees them done; and a fence keeps the
    block that a transfer reads from being handed out before the step has completed.
    """

    WAITING = "waiting"  # never ran
    RUNNING = "running"  # has a row and blocks
    SWAPPED = "swapped"  # its blocks are in the swap pool; no row
    PREEMPTED = "preempted"  # ran, gave its row and blocks back, or some, and computes them again
    FINISHED = "finished"  # has neither; final


# Every edge of the state machine. What is not here is a bug.
LEGAL_EDGES: dict[SequenceStatus, frozenset[SequenceStatus]] = {
    SequenceStatus.WAITING: frozenset({SequenceStatus.RUNNING, SequenceStatus.FINISHED}),
    SequenceStatus.RUNNING: frozenset(
        {SequenceStatus.SWAPPED, SequenceStatus.PREEMPTED, SequenceStatus.FINISHED}
    ),
    # To preempted: the swap was given up for its memory, or the step that moved the blocks failed.
    SequenceStatus.SWAPPED: frozenset(
        {SequenceStatus.RUNNING, SequenceStatus.PREEMPTED, SequenceStatus.FINISHED}
    ),
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
    num_kept    while preempted: leading tokens whose blocks it still has, nobody else's business
    num_owned   slots that may be written without asking for blocks: in the table, and not shared
    step_id     the last plan that has work of this sequence; no plan has two
    num_before  tokens that were planned before that plan: a later copy may rely on them
    is_steered  tokens are chosen outside (beam search): a step gives logprobs and appends nothing,
                and nothing is planned before ``token_ids`` has grown
    constraint  what may be sampled depends on every token before: none is planned before the last
                one has been committed
    """

    __slots__ = (
        "constraint",
        "epoch",
        "finish_reason",
        "group",
        "is_steered",
        "num_before",
        "num_computed",
        "num_given",
        "num_inflight_samples",
        "num_kept",
        "num_owned",
        "num_planned",
        "num_prompt",
        "num_scored",
        "num_to_score",
        "num_tokens_max",
        "row",
        "sampling",
        "seq_id",
        "status",
        "step_id",
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
        self.num_owned = 0
        self.num_kept = 0
        self.step_id = 0
        self.num_before = 0
        self.is_steered = False
        self.constraint: Constraint | None = None
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
    def is_settled(self) -> bool:
        """No step in flight computes or samples anything for this sequence."""
        return self.num_computed == self.num_planned and self.num_inflight_samples == 0

    @property
    def awaits_token(self) -> bool:
        """Nothing can be planned before a step in flight has given the token that it samples."""
        return self.constraint is not None and self.num_inflight_samples > 0

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
        before, self.status = self.status, to
        if self.group.observer is not None:
            self.group.observer(self, before)

    def forget_row(self) -> None:
        """Nothing of this sequence is in the cache any more, and results on the way are stale."""
        self.row = None
        self.epoch += 1
        self.num_computed = self.num_planned = self.num_inflight_samples = self.num_given = 0
        self.num_owned = self.num_kept = 0


class SequenceGroup:
    """All samples of one request: admitted, preempted and reported together.

    ``seniority`` orders groups for service and, backwards, for preemption. It is a stored key and
    not a place in a queue, so that a group which was preempted keeps it. Times are seconds on the
    engine's clock. ``rank`` is the order of service while the group runs. It does not change
    with time, so that the first in it stays first until it ends. ``num_overtakes``: groups that
    started while this one, the first in line, could not. ``overtaken_step``: in which
    the first of them did, None when nobody has. ``num_seqs_max``: sequences it may come to have,
    when it forks more than it begins with. ``timed_out_by`` names the limit of the request that was
    missed. ``observer`` is told of each change of a sequence's status, with the one before
    it. ``num_cached_tokens`` of the prompt were found in the cache when it first started.
    """

    __slots__ = (
        "arrival_time",
        "finished_time",
        "first_scheduled_time",
        "first_token_time",
        "last_token_time",
        "num_cached_tokens",
        "num_overtakes",
        "num_preemptions",
        "num_seqs_max",
        "observer",
        "overtaken_step",
        "rank",
        "request",
        "seniority",
        "sequences",
        "timed_out_by",
        "timeline",
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
        self.num_overtakes = 0
        self.overtaken_step: int | None = None
        self.num_seqs_max = 0
        self.timed_out_by: str | None = None
        self.rank: tuple[float, float, int] = (0.0, 0.0, seniority)
        self.num_cached_tokens = 0
        self.timeline: Timeline | None = None  # set when it ends
        self.observer: Callable[[Sequence, SequenceStatus], None] | None = None

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def is_finished(self) -> bool:
        for seq in self.sequences:  # a loop costs a third of all() with a generator
            if seq.status is not SequenceStatus.FINISHED:
                return False
        return True

    @property
    def unfinished(self) -> list[Sequence]:
        return [seq for seq in self.sequences if not seq.is_finished]

    @property
    def num_seats(self) -> int:
        """What the group counts against ``max_num_seqs`` from its start: all that it may become."""
        return max(len(self.unfinished), self.num_seqs_max)

    @property
    def num_outputs(self) -> int:
        return sum([len(seq.token_ids) - seq.num_prompt for seq in self.sequences])

    def metrics(self) -> RequestMetrics:
        return RequestMetrics(
            arrival_time=self.arrival_time,
            first_scheduled_time=self.first_scheduled_time,
            first_token_time=self.first_token_time,
            finished_time=self.finished_time,
            num_preemptions=self.num_preemptions,
            timeline=self.timeline,
        )
