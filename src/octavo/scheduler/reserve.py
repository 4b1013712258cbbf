# SPDX-License-Identifier: Apache-2.0
"""How much of a group's future must fit before it may start."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.cache.block_manager import BlockManager
from octavo.types.errors import InvalidConfig
from octavo.types.request import ServiceClass
from octavo.types.sequence import Sequence, SequenceGroup

ANSWERS_MIN = 8  # of a class, before its own mean is better than that of all


class _Mean:
    """Of all numbers first, of about the last hundred later."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.count = 0
        self.value = 0.0

    def observe(self, number: int) -> None:
        self.count += 1
        self.value += (number - self.value) / min(self.count, 100)


class Reserve:
    """Blocks that groups are counted for beyond those they hold.

    none      nothing: the first chunk of a prompt starts it
    prompt    all known tokens; half a prompt in a full pool would be preempted without any gain
    expected  and as many more as answers of the group's service class have had on average, or
              those of all classes while this one has had few
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
        self._mean = _Mean()
        self._class_means = {one: _Mean() for one in ServiceClass}

    def observe(self, group: SequenceGroup, num_outputs: int) -> None:
        """An answer of the group has ended by itself after so many tokens."""
        self._mean.observe(num_outputs)
        self._class_means[group.request.service_class].observe(num_outputs)

    def num_outputs_expected(self, group: SequenceGroup) -> int:
        """Tokens that an answer to this group is expected to have. 0 before any has ended."""
        mean = self._class_means[group.request.service_class]
        return int(mean.value if mean.count >= ANSWERS_MIN else self._mean.value)

    def num_tokens(self, seq: Sequence) -> int:
        """Tokens that this sequence is counted for."""
        known = seq.num_tokens
        if self.mode == "max_model_len":
            return max(known, self._max_model_len)
        if self.mode == "full":
            return max(known, seq.num_tokens_max - 1)  # the last token is never computed
        if self.mode == "expected":
            left = self.num_outputs_expected(seq.group) - seq.num_outputs
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
