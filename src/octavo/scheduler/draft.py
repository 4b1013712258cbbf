# SPDX-License-Identifier: Apache-2.0
"""A plan in the making, and a plan on its way."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.types.sequence import Sequence, SequenceGroup
from octavo.types.step import BlockCopy, RowWork, StepPlan

# Tokens with which a long prompt begins. Its first chunks double from here, some 30 ms on two slow
# cores: who came together with it and a moment later must not wait for a full step of it.
FIRST_CHUNK = 64


def chunk_max(start: int) -> int:
    """The most that a prompt may get of a step that cannot finish it, ``start`` tokens into it."""
    return max(FIRST_CHUNK, start)


@dataclass(slots=True)
class Draft:
    """budget         tokens that may still be added to the step
    prefill_left   of these, tokens that may go to prompts: the decodes of running sequences are
                   set aside, so that they come first without being served first
    num_kept_back  of these, tokens that only prompts of promoted groups may have
    num_sharers    prompts among which ``prefill_left`` is still to be shared
    num_awaiting   groups that could start and wait for a prefix that is being computed
    num_partial    prompts that this step leaves unfinished; ``num_long`` of those in progress are
                   long
    is_short       a running sequence lacks blocks: nobody is started, it would only thrash
    lets_pass      prompts that this step cannot finish are served after those that it can, and with
                   at most half as many tokens as all else; ``has_let_pass``: that cost them some
    """

    step_id: int
    budget: int
    prefill_left: int = 0
    num_kept_back: int = 0
    num_sharers: int = 0
    num_partial: int = 0
    num_long: int = 0
    num_awaiting: int = 0
    is_short: bool = False
    lets_pass: bool = False
    has_let_pass: bool = False
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

    def share(self, is_promoted: bool = False) -> int:
        """Tokens for the next prompt to be served: an equal part of what is left, rounded up.

        A prompt that needs less leaves more to those behind it, so short prompts are whole in the
        step that starts them while a long one beside them goes on in pieces.
        """
        sharers = max(1, self.num_sharers)
        return max(0, min(self.budget, self.part(self.prefill_left, sharers, is_promoted)))

    def part(self, left: int, sharers: int, is_promoted: bool) -> int:
        """Of ``left`` tokens an equal part, of what is not kept back; or more, of what is."""
        kept = min(left, self.num_kept_back)
        return max(kept, -(-left // sharers)) if is_promoted else -(-(left - kept) // sharers)

    def piece(self, lag: int, start: int, is_promoted: bool = False) -> int:
        """Tokens for the next prompt to be served, of which ``lag`` from ``start`` on are to be
        computed. One that lets others pass gets a single token, and more when they are served."""
        share = self.share(is_promoted)
        if lag <= share:
            return lag
        return min(share, 1 if self.lets_pass else chunk_max(start))

    def spare(self) -> int:
        """Tokens that prompts which are cut short may still get, once all others are served.

        A first token is late by whatever shares its step. Half as many tokens as all else, so that
        a short prompt beside long ones takes at most half as long again as without them.
        """
        left = min(self.budget, self.prefill_left)
        num_cut = sum(self.work[idx].num_tokens for idx in self.cut_short)
        if not self.lets_pass or self.num_prefill_tokens == num_cut:  # then nobody has passed
            return left
        num_others = sum(work.num_tokens for work in self.work) - num_cut
        spare = max(0, num_others // 2 - num_cut)
        self.has_let_pass = spare < left
        return min(left, spare)


@dataclass(frozen=True, slots=True)
class Flight:
    """A plan that the executor has and whose result it has not given back."""

    plan: StepPlan
    workers: tuple[tuple[Sequence, int], ...]
    swapped_in: tuple[tuple[Sequence, int], ...]
    num_prefill_tokens: int
    num_context_tokens: int
