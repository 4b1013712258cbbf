# SPDX-License-Identifier: Apache-2.0
"""How to search for likely answers instead of drawing some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from octavo.types.errors import InvalidRequest

# A step reports so many of the likeliest tokens of each beam; a search needs 2 to 3 per beam.
BEAM_WIDTH_MAX = 64
# (2^31)^30 = 2^930: no length to this power, and no score over it, leaves a float's range, 2^1023.
LENGTH_PENALTY_MAX = 30.0

EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchParams:
    """Immutable; a bad value raises ``InvalidRequest`` that names the field.

    beam_width      answers kept at each step, and given at the end, [1, 64]
    max_tokens      longest answer, >= 1, the end of sequence included
    length_penalty  an answer's score is its logprob divided by its length to this power, [-30, 30];
                    above 0 favours long answers, below 0 short ones
    early_stopping  True: end when there are beam_width answers. False: end when the likeliest beam,
                    were it to end now, would not be among them. "never": end when no beam can
                    come to be among them, whatever follows
    ignore_eos      no answer ends before max_tokens
    end_token_ids   ids that end an answer; None takes the model's own
    """

    beam_width: int = 4
    max_tokens: int = 16
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = False
    ignore_eos: bool = False
    end_token_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name, high in (("beam_width", BEAM_WIDTH_MAX), ("max_tokens", 2**31 - 1)):
            value = getattr(self, name)
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
