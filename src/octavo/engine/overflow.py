# SPDX-License-Identifier: Apache-2.0
"""Capacity: how much fits at all, and how a prompt that does not is cut."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.types.sampling_params import OnOverflow

ANSWER_SHARE = 4  # a cut prompt leaves a quarter of the room when the answer's length is open


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """max_model_len: longest prompt plus answer. num_slots: tokens that an empty KV pool holds, in
    blocks of block_size. num_samples_max: sequences that may run at once. has_priorities: whether
    the scheduling policy looks at a request's priority. num_window_blocks: blocks that a sequence
    holds at most however long it is, where the model sees only so far back.
    """

    max_model_len: int
    num_slots: int
    block_size: int = 1
    num_samples_max: int = 2**31 - 1
    has_priorities: bool = True
    num_window_blocks: int | None = None

    @property
    def num_tokens_max(self) -> int:
        return self.max_model_len if self._forgets(1) else min(self.max_model_len, self.num_slots)

    @property
    def num_blocks(self) -> int:
        return self.num_slots // self.block_size

    def answer_room(self, num_prompt: int, num_samples: int) -> int:
        """Tokens that each sample may add to the prompt in an empty pool; below 1: none fits.

        The samples share the prompt's full blocks. Each needs its own from there on, the partial
        block included: s + n * t blocks for s shared ones and n tails of t.
        """
        in_context = self.max_model_len - num_prompt
        if self._forgets(num_samples):
            return in_context
        num_shared = num_prompt // self.block_size
        tail = (self.num_blocks - num_shared) // num_samples
        return min(in_context, (num_shared + tail) * self.block_size - num_prompt)

    def prompt_room(self, num_answer: int, num_samples: int) -> int:
        """The longest prompt beside which every sample has room for ``num_answer`` tokens.

        With several samples it ends on a block boundary, where the tails hold nothing but answer.
        """
        if num_samples == 1 or self._forgets(num_samples):
            return self.num_tokens_max - num_answer
        tail = -(-num_answer // self.block_size)
        shared = (self.num_blocks - num_samples * tail) * self.block_size
        return min(self.max_model_len - num_answer, shared)

    def _forgets(self, num_samples: int) -> bool:
        """Do so many sequences fit at any length, with a block left for a chunk of the prompt?"""
        most = self.num_window_blocks
        return most is not None and num_samples * most < self.num_blocks

    def cut_length(self, max_tokens: int | None, num_samples: int) -> int:
        """How long a prompt that is too long becomes: room is left for the answer that was asked
        for, but never more than half of everything."""
        limit = self.num_tokens_max
        wanted = limit // ANSWER_SHARE if max_tokens is None else max_tokens
        return self.prompt_room(max(1, min(wanted, limit // 2)), num_samples)


def truncate(
    token_ids: tuple[int, ...], length: int, policy: OnOverflow, *, bos_token_id: int | None
) -> tuple[int, ...]:
    """``length`` of the ids, at least 1. A begin-of-sequence token survives a cut on the left: a
    model that was trained with it goes astray without."""
    if policy is OnOverflow.TRUNCATE_RIGHT:
        num_head = length
    elif policy is OnOverflow.TRUNCATE_MIDDLE:
        num_head = (length + 1) // 2
    else:
        num_head = 1 if length > 1 and token_ids[0] == bos_token_id else 0
    return token_ids[:num_head] + token_ids[len(token_ids) - (length - num_head) :]
