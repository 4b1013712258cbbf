# SPDX-License-Identifier: Apache-2.0
"""How to search for likely answers instead of drawing some."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import OnOverflow, OutputKind, SamplingParams

# A step reports so many of the likeliest tokens of each beam; a search needs 2 to 3 per beam.
BEAM_WIDTH_MAX = 64
# (2^31)^30 = 2^930: no length to this power, and no score over it, leaves a float's range, 2^1023.
LENGTH_PENALTY_MAX = 30.0

# Fields of ``SamplingParams`` that a search has a use for; of a seed and a temperature it has none,
# but callers who ask for a search send both.
_HEEDED = frozenset(
    "n best_of max_tokens ignore_eos on_overflow timeout_s queue_timeout_s ttft_timeout_s "
    "seed temperature output_kind".split()
)

EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """Immutable; a bad value raises ``InvalidRequest`` that names the field.

    beam_width      answers kept at each step, [1, 64]
    n               of them given at the end, the best first; None gives all
    max_tokens      longest answer, >= 1, the end of sequence included, or None: up to the model's
                    context
    length_penalty  an answer's score is its logprob divided by its length to this power, [-30, 30];
                    above 0 favours long answers, below 0 short ones
    early_stopping  True: end when there are beam_width answers. False: end when the likeliest beam,
                    were it to end now, would not be among them. "never": end when no beam can
                    come to be among them, whatever follows
    ignore_eos      no answer ends before max_tokens
    end_token_ids   ids that end an answer; None takes the model's own
    on_overflow, timeout_s, queue_timeout_s, ttft_timeout_s   as in ``SamplingParams``
    """

    beam_width: int = 4
    max_tokens: int | None = 16
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    ignore_eos: bool = False
    end_token_ids: tuple[int, ...] | None = None
    n: int | None = None
    on_overflow: OnOverflow = OnOverflow.ERROR
    timeout_s: float | None = None
    queue_timeout_s: float | None = None
    ttft_timeout_s: float | None = None

    def __post_init__(self) -> None:
        limits = {"beam_width": BEAM_WIDTH_MAX, "n": self.beam_width, "max_tokens": 2**31 - 1}
        for name, high in limits.items():
            value: object = getattr(self, name)
            if value is None and name != "beam_width":
                continue
            if type(value) is not int or not 1 <= value <= high:
                message = f"{name} must be an integer in [1, {high}], got {value!r}"
                raise InvalidRequest(message, param=name)
        penalty = self.length_penalty
        is_number = isinstance(penalty, int | float) and not isinstance(penalty, bool)
        if not is_number or not abs(penalty) <= LENGTH_PENALTY_MAX:
            limit = f"[{-LENGTH_PENALTY_MAX:g}, {LENGTH_PENALTY_MAX:g}]"
            message = f"length_penalty must be in {limit}, got {penalty!r}"
            raise InvalidRequest(message, param="length_penalty")
        stopping: object = self.early_stopping
        if not isinstance(stopping, bool) and stopping != "never":  # 1 would not be taken for True
            message = f'early_stopping must be True, False or "never", got {stopping!r}'
            raise InvalidRequest(message, param="early_stopping")
        for token_id in self.end_token_ids or ():
            if type(token_id) is not int or token_id < 0:
                message = f"end_token_ids must be integers >= 0, got {token_id!r}"
                raise InvalidRequest(message, param="end_token_ids")
        _ = self.as_samples  # checks the rest

    @classmethod
    def like(
        cls,
        params: SamplingParams,
        *,
        length_penalty: float = 1.0,
        early_stopping: EarlyStopping = False,
    ) -> BeamSearchParams:
        """A search in the words of sampling: ``n`` answers of ``best_of`` beams, or of ``n``.

        Raises ``InvalidRequest`` for what a search would not heed.
        """
        for field in fields(SamplingParams):
            if field.name not in _HEEDED and getattr(params, field.name) != field.default:
                message = f"{field.name} has no effect on a beam search; leave it out"
                raise InvalidRequest(message, param=field.name)
        return cls(
            beam_width=params.num_samples,
            n=params.n,
            max_tokens=params.max_tokens,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            ignore_eos=params.ignore_eos,
            on_overflow=params.on_overflow,
            timeout_s=params.timeout_s,
            queue_timeout_s=params.queue_timeout_s,
            ttft_timeout_s=params.ttft_timeout_s,
        )

    @property
    def num_answers(self) -> int:
        return self.beam_width if self.n is None else self.n

    @property
    def as_samples(self) -> SamplingParams:
        """The sampling that takes as much memory and time, or more: a sample for each beam."""
        return SamplingParams(
            n=self.num_answers,
            best_of=self.beam_width,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            output_kind=OutputKind.FINAL_ONLY,
            on_overflow=self.on_overflow,
            timeout_s=self.timeout_s,
            queue_timeout_s=self.queue_timeout_s,
            ttft_timeout_s=self.ttft_timeout_s,
        )
