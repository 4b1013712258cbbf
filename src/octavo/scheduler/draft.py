# SPDX-License-Identifier: Apache-2.0
"""A plan in the making, and a plan on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.types.sequence import Sequence, SequenceGroup
from octavo.types.step import BlockCopy, RowWork, StepPlan


@dataclass(slots=True)
class Draft:
    """budget         tokens that may still be added to the step
    prefill_left   of these, tokens that may go to prompts: the decodes of running sequences are
                   set aside, so that they come first without being served first
    num_sharers    prompts among which ``prefill_left`` is still to be shared
    num_awaiting   groups that could start and wait for a prefix that is being computed
    num_partial    prompts that this step leaves unfinished; ``num_long`` of those in progress are
                   long
    is_short       a running sequence lacks blocks: nobody is started, it would only thrash
    """

    step_id: int
    budget: int
    prefill_left: int = 0
    num_sharers: int = 0
    num_partial: int = 0
    num_long: int = 0
    num_awaiting: int = 0
    is_short: bool = False
    copies: list[BlockCopy] = field(default_factory=list)
    swap_ins: list[tuple[int, int]] = field(default_factory=list)
    swap_outs: list[tuple[int, int]] = field(default_factory=list)
    swapped_out: list[SequenceGroup] = field(default_factory=list)
    swapped_in: list[tuple[Sequence, int]] = field(default_factory=list)
    work: list[RowWork] = field(default_factory=list)
    # Who does the work, and in which of its lives: a result is stale when the epoch has changed.
    workers: list[tuple[Sequence, int]] = field(default_factory=list)
    cut_short: list[int] = field(default_factory=list)  # indices of work that may be extended
    num_prefill_tokens: int = 0
    num_context_tokens: int = 0  # that the step's tokens attend to, one term per row

    def share(self) -> int:
        """Tokens for the next prompt to be served: an equal part of what is left, rounded up.

        A prompt that needs less leaves more to those behind it, so short prompts are whole in the
        step that starts them while a long one beside them goes on in pieces.
        """
        sharers = max(1, self.num_sharers)
        return min(self.budget, -(-self.prefill_left // sharers))


@dataclass(frozen=True, slots=True)
class Flight:
    """A plan that the executor has and whose result it has not given back."""

    plan: StepPlan
    workers: tuple[tuple[Sequence, int], ...]
    swapped_in: tuple[tuple[Sequence, int], ...]
    num_prefill_tokens: int
    num_context_tokens: int
