# SPDX-License-Identifier: Apache-2.0
"""The seam: what the control plane asks of the data plane for one step, and what comes back.

A worker keeps one *row* per live sequence: its block table, how many tokens the KV cache holds for
it, its sampler state and the last token it sampled. A ``StepPlan`` names rows and carries only what
changed, so a decode costs a few integers, and the token that a decode continues from never travels:
the row already has it. The worker applies a plan in the order of the fields below.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RowSampling:
    """The sampler's settings for one row; fixed while the row is open.

    ``seed`` with ``sample_idx`` (which of a request's ``n`` samples) and the position of the token
    key the counter-based generator, so a draw depends on nothing else.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    sample_idx: int = 0
    num_logprobs: int | None = None  # None: no logprobs at all; 0: the sampled token's only
    banned_until: int = 0  # banned_ids get probability 0 at positions below this (min_tokens)
    banned_ids: tuple[int, ...] = ()
    typical_p: float = 1.0
    top_n_sigma: float = 0.0  # 0: off
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # (id, added to its logit)
    allowed_ids: tuple[int, ...] = ()  # empty: every id
    bad_words: tuple[tuple[int, ...], ...] = ()  # id sequences whose last token may not complete
    has_processed_logprobs: bool = False  # of the distribution that is drawn from, not the model's

    @property
    def needs_history(self) -> bool:
        """Whether the next token depends on which tokens came before, beside the logits."""
        return bool(
            self.bad_words
            or self.repetition_penalty != 1.0
            or self.presence_penalty
            or self.frequency_penalty
        )


@dataclass(frozen=True, slots=True)
class RowOpen:
    """Row ``row`` now belongs to another sequence.

    It may begin with tokens that are in the cache already (a prefix hit, a swap-in, a fork):
    ``blocks`` is its table and the first ``num_computed`` slots of it are valid, or become so by
    this plan's swap-ins, copies, or the work of the row it forks from.

    ``history`` holds all ids known of the sequence, the first ``num_prompt`` of them its prompt, if
    ``sampling.needs_history``, and nothing otherwise. What the row samples is appended by itself:
    whenever it samples, all tokens before that one are in its history.
    """

    row: int
    sampling: RowSampling
    num_computed: int = 0
    blocks: tuple[int, ...] = ()
    history: tuple[int, ...] = ()
    num_prompt: int = 0


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the first ``num_tokens`` slots of block ``src`` to block ``dst``, in every layer."""

    src: int
    dst: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RowWork:
    """Compute ``num_tokens`` tokens of a row, at positions [start, start + num_tokens).

    token_ids    the ids at those positions; empty for a decode, which continues from the row's own
                 last sampled token (then num_tokens is 1)
    new_blocks   block ids appended to the row's table before computing
    replaced     (index in the row's table, block id): entries replaced before computing, when
                 copy-on-write gave the row a block of its own; the copy is in the plan's copies
    logits_of    a row of this plan that samples, and whose work ends where this one starts: this
                 row computes nothing (num_tokens 0) and samples from that row's logits with its own
                 settings. So the samples of one prompt part without computing it twice.
    samples      the last position's logits are wanted: sample the next token
    targets      score these ids: entry i is the id at position start + i + 1, and the result has
                 its logprob given everything before it. Empty when nothing is to be scored.
    allowed      which ids may be sampled: bit i % 8 of byte i // 8 says it for id i, and the length
                 is that of the whole vocabulary. Empty: all of them.
    """

    row: int
    start: int
    num_tokens: int
    token_ids: tuple[int, ...] = ()
    new_blocks: tuple[int, ...] = ()
    samples: bool = False
    targets: tuple[int, ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()
    logits_of: int | None = None
    allowed: bytes = b""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step, whole. Immutable, so it may be queued, traced, replayed and sent elsewhere.

    closed       rows whose sequence ended or was preempted; their table is forgotten
    opened       rows that begin a sequence
    swap_ins     (swap block, device block), then
    swap_outs    (device block, swap block), then
    copies       copy-on-write, all three before any token is computed
    work         the tokens to compute, each row at most once
    """

    step_id: int
    closed: tuple[int, ...] = ()
    opened: tuple[RowOpen, ...] = ()
    swap_ins: tuple[tuple[int, int], ...] = ()
    swap_outs: tuple[tuple[int, int], ...] = ()
    copies: tuple[BlockCopy, ...] = ()
    work: tuple[RowWork, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(work.num_tokens for work in self.work)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """One token's log-probability, its rank (1 is the likeliest), and the likeliest alternatives.

    Of the model's own distribution, before temperature and truncation, unless the row's settings
    ask for processed ones; natural logarithm.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()  # (id, logprob), likeliest first


@dataclass(frozen=True, slots=True)
class RowResult:
    """What one row's work gave. ``error`` set: this row failed and only this row."""

    row: int
    token_id: int | None = None  # None when the work did not ask for a sample
    logprobs: TokenLogprobs | None = None
    scored: tuple[TokenLogprobs, ...] = ()  # one per target
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """The answer to the plan with the same ``step_id``; ``rows`` follow the plan's ``work``."""

    step_id: int
    rows: tuple[RowResult, ...] = field(default=())
    compute_s: float = 0.0  # spent in native code, swapping left out
    swap_s: float = 0.0  # spent on the plan's swap_ins and swap_outs
