# SPDX-License-Identifier: Apache-2.0
"""Beam search, the choosing: no engine and no memory in here.

At every step each beam offers its likeliest next tokens. Of all offers the best are looked at, by
the sum of their logprobs: those that end an answer become answers if they are among the first
``width``, and the best ``width`` of those that do not are the next beams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.types.beam_search_params import BeamSearchParams


@dataclass(frozen=True, slots=True)
class Branch:
    """Beam ``parent_idx`` goes on with ``token_id``; ``logprob`` is the sum from the start."""

    parent_idx: int
    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Answer:
    """``score`` is ``logprob`` over the length to the power of ``length_penalty``."""

    token_ids: tuple[int, ...]
    logprob: float
    score: float
    ended: bool  # by an end-of-sequence token, and not by its length


Offer = Sequence[tuple[int, float]]  # (token, logprob), the likeliest first


class BeamSearch:
    """One search. Feed it offers until ``answers`` are final."""

    def __init__(self, params: BeamSearchParams, *, max_tokens: int, end_ids: frozenset[int]):
        self._params = params
        self._max_tokens = max_tokens
        self._end_ids = frozenset() if params.ignore_eos else end_ids
        self._beams: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
        self._answers: list[Answer] = []
        self._can_improve = True

    @property
    def num_offers(self) -> int:
        """Tokens that each beam must offer: even if every end-of-sequence token comes first, as
        many as there are beams must be left to go on."""
        return max(2, 1 + len(self._end_ids)) * self._params.beam_width

    @property
    def num_beams(self) -> int:
        return len(self._beams)

    def answers(self) -> list[Answer]:
        """The best so far, at most ``beam_width``; the best first."""
        return list(self._answers)

    def advance(self, offers: Sequence[Offer]) -> list[Branch]:
        """Choose from one offer per beam. Empty when the search is over."""
        ranked = self._rank(offers)
        length = len(self._beams[0][0]) + 1
        is_last = length == self._max_tokens
        width = self._params.beam_width
        self._collect([b for b in ranked[:width] if is_last or b.token_id in self._end_ids], length)
        going_on = [branch for branch in ranked if branch.token_id not in self._end_ids][:width]
        if is_last or self._is_over(going_on, length):
            return []
        self._beams = [
            (self._beams[branch.parent_idx][0] + (branch.token_id,), branch.logprob)
            for branch in going_on
        ]
        return going_on

    def _rank(self, offers: Sequence[Offer]) -> list[Branch]:
        branches = [
            Branch(idx, token_id, logprob + total)
            for idx, (offer, (_, total)) in enumerate(zip(offers, self._beams, strict=True))
            for token_id, logprob in offer
        ]
        branches.sort(key=lambda branch: -branch.logprob)  # stable: ties go to the earlier beam
        return branches[: self.num_offers]

    def _collect(self, ending: list[Branch], length: int) -> None:
        """Take in new answers, unless the search had come so far that none could count."""
        if not self._can_improve or (self._params.early_stopping is True and self._is_full):
            return
        for branch in ending:
            token_ids = self._beams[branch.parent_idx][0] + (branch.token_id,)
            score = branch.logprob / length**self._params.length_penalty
            ended = branch.token_id in self._end_ids
            self._answers.append(Answer(token_ids, branch.logprob, score, ended))
        self._answers.sort(key=lambda answer: -answer.score)
        del self._answers[self._params.beam_width :]

    @property
    def _is_full(self) -> bool:
        return len(self._answers) == self._params.beam_width

    def _is_over(self, going_on: list[Branch], length: int) -> bool:
        """Could the likeliest beam still come to be among the answers? Judged, unless "never", by
        what it would score if it ended at its present length."""
        if not going_on:
            return True
        stopping, penalty = self._params.early_stopping, self._params.length_penalty
        if not self._is_full:
            return False
        if stopping is True:
            return True
        looks_far = stopping == "never" and penalty > 0
        hoped_length = self._max_tokens if looks_far else length
        self._can_improve = going_on[0].logprob / hoped_length**penalty > self._answers[-1].score
        return not self._can_improve
