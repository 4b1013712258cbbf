# SPDX-License-Identifier: Apache-2.0
"""Beam search in the engine: one request whose sequences fork and die as its search decides.

A beam is a steered sequence: its steps give logprobs, and its next token is appended from here.
Branches of one beam share its blocks until they write, so a step of the search moves no memory.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.engine.beam import Answer, BeamSearch, Offer
from octavo.scheduler.scheduler import Progress, Scheduler
from octavo.types.errors import CorruptState
from octavo.types.outputs import CompletionOutput, FinishReason, RequestOutput
from octavo.types.ports import Tokenizer
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus


class BeamRun:
    """One search in progress. The scheduler's thread owns it."""

    def __init__(
        self,
        group: SequenceGroup,
        search: BeamSearch,
        scheduler: Scheduler,
        next_seq_id: Callable[[], int],
    ) -> None:
        self.group = group
        self._search = search
        self._scheduler = scheduler
        self._next_seq_id = next_seq_id
        self._beams = list(group.sequences)
        self._offers: dict[int, Offer] = {}  # by sequence; a preempted beam may offer again

    def take(self, progress: Progress) -> None:
        """Keep what a beam offers, if the step has come to its last token."""
        logprobs = progress.result.logprobs
        if logprobs is not None:
            self._offers[progress.seq.seq_id] = logprobs.top

    @property
    def is_ready(self) -> bool:
        """Has every beam offered, and can it fork? Not while it is swapped out, nor while a step in
        flight computes for it: one that was preempted after its offer is about to offer again, and
        that would be taken for its next offer."""
        return all(
            beam.seq_id in self._offers
            and beam.status is not SequenceStatus.SWAPPED
            and beam.is_settled
            for beam in self._beams
        )

    def decide(self) -> int:
        """Choose the next beams: fork those with several branches, end those with none. How many
        there are now; 0 when the search is over, and all have ended."""
        branches = self._search.advance([self._offers[beam.seq_id] for beam in self._beams])
        self._offers.clear()
        parents = self._beams
        alive = {branch.parent_idx for branch in branches}
        for idx, beam in enumerate(parents):  # first, so that their rows are free for forks
            if idx not in alive:
                self._scheduler.finish(beam, FinishReason.STOP, None)
        # All forks before any token: a child begins with what its parent has computed.
        beams, has_heir = [], set()
        for branch in branches:
            parent = parents[branch.parent_idx]
            beams.append(self._fork(parent) if branch.parent_idx in has_heir else parent)
            has_heir.add(branch.parent_idx)
        for beam, branch in zip(beams, branches, strict=True):
            beam.token_ids.append(branch.token_id)
        self._beams = beams
        if beams:  # the ended hold nothing; a group that remembered them all would only grow
            self.group.sequences[:] = beams
        return len(beams)

    def _fork(self, parent: Sequence) -> Sequence:
        """A second sequence with the same tokens. If the parent has lost its blocks, so has the
        child, and computes its tokens again or finds them in the cache."""
        child = Sequence(self._next_seq_id(), self.group, parent.sampling)
        child.is_steered = True
        child.token_ids = list(parent.token_ids)
        self.group.sequences.append(child)
        if parent.row is not None:
            if not parent.is_settled:
                raise CorruptState(f"sequence {parent.seq_id} forks while it computes")
            self._scheduler.fork(parent, child)
        return child

    def output(
        self, tokenizer: Tokenizer, reason: FinishReason, error: str | None
    ) -> RequestOutput:
        """The answers, the best first. When the search was cut short: those found by then."""
        request = self.group.request
        answers = self._search.answers()
        num_output_tokens = sum(len(answer.token_ids) for answer in answers)
        is_whole = reason in (FinishReason.STOP, FinishReason.LENGTH)
        samples = tuple(
            _sample(idx, answer, tokenizer, None if is_whole else reason)
            for idx, answer in enumerate(answers[: request.params.n])
        )
        if not samples:
            samples = (CompletionOutput(0, "", (), finish_reason=reason.value),)
        return RequestOutput(
            request_id=request.request_id,
            prompt=request.prompt,
            prompt_token_ids=request.prompt_token_ids,
            outputs=samples,
            finished=True,
            num_output_tokens=num_output_tokens,
            num_cached_tokens=self.group.num_cached_tokens,
            num_truncated_tokens=request.num_truncated_tokens,
            metrics=self.group.metrics(),
            error=error,
        )


def _sample(
    idx: int, answer: Answer, tokenizer: Tokenizer, cut_short: FinishReason | None
) -> CompletionOutput:
    own = FinishReason.STOP if answer.ended else FinishReason.LENGTH
    return CompletionOutput(
        index=idx,
        text=tokenizer.decode(answer.token_ids),
        token_ids=answer.token_ids,
        cumulative_logprob=answer.logprob,
        finish_reason=(cut_short or own).value,
        score=answer.score,
    )
