# SPDX-License-Identifier: Apache-2.0
"""A worker made of dictionaries: runs what the block manager answers and looks at every slot.

A slot holds the *history* it was computed from: a number that stands for the key and for all tokens
up to and including its own. So "this sequence reads what it would have computed itself" is one
comparison per position, and any mistake in sharing, copying, swapping, evicting or fencing shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.cache.cache_key import CacheKey
from octavo.types.step import BlockCopy

History = int


class Histories:
    """Numbers for (key, tokens): equal exactly if the computed keys and values would be."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, object], History] = {}

    def of(self, key: CacheKey, tokens: list[int]) -> list[History]:
        previous: object = key
        numbers = []
        for token in tokens:
            number = self._numbers.setdefault((previous, token), len(self._numbers))
            numbers.append(number)
            previous = number
        return numbers


@dataclass
class Seq:
    """A sequence as its owner sees it."""

    key: CacheKey
    tokens: list[int]
    num_planned: int = 0  # computed once every step planned so far has run
    num_committed: int = 0  # computed by the steps that have completed
    is_swapped: bool = False


@dataclass
class Work:
    seq_id: int
    start: int
    num_valid: int  # position up to which what it computes still counts at commit
    histories: list[History]  # of every position up to its end
    table: list[int]
    num_hidden: int = 0  # leading blocks that it does not look at
    is_lost: bool = False  # it goes on after a step that failed, and computes rubbish


@dataclass
class Step:
    """A plan, as the worker gets it."""

    swap_ins: list[tuple[int, int]] = field(default_factory=list)
    swap_outs: list[tuple[int, int]] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)
    work: dict[int, Work] = field(default_factory=dict)
    fresh: set[int] = field(default_factory=set)  # blocks handed out for it
    reliant: set[int] = field(default_factory=set)  # sequences lost if it fails
    returned: set[int] = field(default_factory=set)  # those of them that it swaps in

    def moved(self) -> set[int]:
        """Device blocks that it reads or writes before it computes."""
        moved = {device for _, device in self.swap_ins} | {device for device, _ in self.swap_outs}
        return moved | {block for copy in self.copies for block in (copy.src, copy.dst)}

    def moved_swap(self) -> set[int]:
        return {swap for swap, _ in self.swap_ins} | {swap for _, swap in self.swap_outs}

    def touched(self) -> set[int]:
        return self.moved() | {
            block for work in self.work.values() for block in work.table[work.num_hidden :]
        }


class Memory:
    """Both tiers, block by block, slot by slot; None where nothing was ever written."""

    def __init__(self, num_blocks: int, num_swap_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.window: int | None = None  # positions that a token sees, its own included
        self.device: list[list[History | None]] = [[None] * block_size for _ in range(num_blocks)]
        self.swap: list[list[History | None]] = [
            [None] * block_size for _ in range(num_swap_blocks)
        ]

    def crash(self, step: Step) -> None:
        """It has failed: of what it was to move, copy and compute, nothing can be relied on."""
        for block in [dst for _, dst in step.swap_ins] + [copy.dst for copy in step.copies]:
            self.device[block] = [None] * self.block_size
        for _, swap in step.swap_outs:
            self.swap[swap] = [None] * self.block_size
        for work in step.work.values():
            self._write(work, is_rubbish=True)

    def _write(self, work: Work, *, is_rubbish: bool) -> None:
        for position in range(work.start, len(work.histories)):
            block_idx, slot = divmod(position, self.block_size)
            written = None if is_rubbish else work.histories[position]
            self.device[work.table[block_idx]][slot] = written

    def run(self, step: Step) -> None:
        """Do it, in the order of the plan's fields; AssertionError if a row reads what is wrong."""
        for swap, device in step.swap_ins:
            self.device[device] = self.swap[swap].copy()
        for device, swap in step.swap_outs:
            self.swap[swap] = self.device[device].copy()
        for copy in step.copies:
            # Only the filled slots travel; what else the target held is garbage, and says so.
            self.device[copy.dst] = [None] * self.block_size
            self.device[copy.dst][: copy.num_tokens] = self.device[copy.src][: copy.num_tokens]
        for work in step.work.values():
            self._write(work, is_rubbish=work.is_lost)
        for work in step.work.values():
            if work.is_lost:
                continue
            first = 0 if self.window is None else max(0, work.start - self.window + 1)
            found = [
                self.device[work.table[position // self.block_size]][position % self.block_size]
                for position in range(first, len(work.histories))
            ]
            assert found == work.histories[first:], (
                f"sequence {work.seq_id} reads {found} through {work.table},"
                f" it would have computed {work.histories[first:]}"
            )
