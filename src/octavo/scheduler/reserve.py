# SPDX-License-Identifier: Apache-2.0
"""How much of a group's future must fit before it may start."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.cache.block_manager import BlockManager
from octavo.types.errors import InvalidConfig
from octavo.types.sequence import Sequence, SequenceGroup


class Reserve:
    """Blocks that groups are counted for beyond those they hold.

    none      nothing: the first chunk of a prompt starts it
    prompt    all known tokens; half a prompt in a full pool would be preempted without any gain
    expected  and as many more as answers have had on average
    full      and all that ``max_tokens`` allows: then nobody is ever preempted
    max_model_len  the longest that any sequence may be, for each of them, as a contiguous cache has
              to set it aside: the baseline that paging is compared with
    """

    def __init__(self, blocks: BlockManager, mode: str, max_model_len: int | None = None) -> None:
        if mode == "max_model_len" and max_model_len is None:
            raise InvalidConfig("admission_reserve max_model_len needs max_model_len, got None")
        self._blocks = blocks
        self.mode = mode
        self._max_model_len = max_model_len or 0
        self.mean_outputs = 0.0
        self._num_answers = 0

    def observe(self, num_outputs: int) -> None:
        """An answer has ended by itself after so many tokens."""
        self._num_answers += 1
        # A mean over all answers first, over about the last hundred later.
        self.mean_outputs += (num_outputs - self.mean_outputs) / min(self._num_answers, 100)

    def num_tokens(self, seq: Sequence) -> int:
        """Tokens that this sequence is counted for."""
        known = seq.num_tokens
        if self.mode == "max_model_len":
            return max(known, self._max_model_len)
        if self.mode == "full":
            return max(known, seq.num_tokens_max - 1)  # the last token is never computed
        if self.mode == "expected":
            left = int(self.mean_outputs) - seq.num_outputs
            return min(known + max(0, left), max(known, seq.num_tokens_max - 1))
        return known if self.mode == "prompt" else 0

    def num_blocks_for(self, group: SequenceGroup) -> int:
        """Blocks of the group at the length it is counted for, its samples' prompt once."""
        seqs = group.unfinished
        if not seqs:
            return 0
        if self.mode == "max_model_len":  # where each sequence is contiguous none shares
            return sum(self._blocks.num_blocks_for(self.num_tokens(seq)) for seq in seqs)
        shared = seqs[0].num_prompt // self._blocks.block_size
        hidden = self._num_hidden(seqs[0])
        total = max(0, min(shared, self._blocks.num_blocks_for(self.num_tokens(seqs[0]))) - hidden)
        for seq in seqs:
            own = max(shared, self._num_hidden(seq))
            total += max(0, self._blocks.num_blocks_for(self.num_tokens(seq)) - own)
        return total

    def num_useful(self, seq: Sequence, num_cached: int) -> int:
        """Of the blocks that were found in the cache, those that the sequence is counted for."""
        return max(0, num_cached // self._blocks.block_size - self._num_hidden(seq))

    def _num_hidden(self, seq: Sequence) -> int:
        """Blocks that it gives up on its way to the length that it is counted for."""
        return self._blocks.window.num_hidden(max(0, self.num_tokens(seq) - 1))

    def num_promised(self, running: Iterable[SequenceGroup]) -> int:
        """Blocks that running groups are counted for and do not hold yet. O(running sequences).

        Under "prompt" only prompts in the making have any, so the free blocks are enough for all of
        them even though each takes its blocks chunk by chunk.
        """
        if self.mode == "none":
            return 0
        num_blocks_for = self._blocks.window.num_blocks_for
        total = 0
        for group in running:
            shared = group.request.num_samples > 1 and group.sequences[0].num_prompt
            for seq in group.sequences:
                if seq.is_finished:
                    continue
                held = seq.num_planned if seq.row is not None else shared
                missing = num_blocks_for(self.num_tokens(seq)) - num_blocks_for(held)
                total += max(0, missing)
        return total
