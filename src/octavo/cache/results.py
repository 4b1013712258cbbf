# SPDX-License-Identifier: Apache-2.0
"""What the block manager answers. Running out is an answer too: None, having changed nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from octavo.types.step import BlockCopy


class AllocStatus(Enum):
    """Whether a sequence can have the blocks that it needs."""

    OK = "ok"
    LATER = "later"  # when others have given some back
    NEVER = "never"  # not even from an empty pool


class Probe(NamedTuple):
    """What an admission would find and need, at this moment."""

    num_cached_tokens: int  # already computed: full blocks to share, part of one to copy
    num_new_blocks: int  # to be taken from the free and the cached ones
    status: AllocStatus


class Admission(NamedTuple):
    """A table made for a new sequence."""

    num_cached_tokens: int  # valid in ``blocks`` once ``copies`` are done; computing starts here
    blocks: tuple[int, ...]  # the whole table
    copies: tuple[BlockCopy, ...]


class Growth(NamedTuple):
    """What changed in a table so that some positions may be written."""

    new_blocks: tuple[int, ...]  # appended
    replaced: tuple[tuple[int, int], ...]  # (index in the table, block id): were shared
    copies: tuple[BlockCopy, ...]


class Moves(NamedTuple):
    """A swap-out: its transfers, and how many blocks needed none."""

    pairs: tuple[tuple[int, int], ...]  # (device block, swap block)
    num_clean: int  # blocks whose copy in the swap pool was still current


class SwapIn(NamedTuple):
    """A swap-in: its transfers, and the device tables of the sequences that came back."""

    pairs: tuple[tuple[int, int], ...]  # (swap block, device block)
    tables: dict[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class BlockUsage:
    """Blocks by place: free + cached + referenced + limbo == num_blocks, and so for swap.

    ``num_pinned`` and ``num_shared`` (more than one reference) are among the referenced ones.
    ``num_waste_slots`` are slots in tables with no token: the unfilled part of last blocks.
    ``num_logical`` counts table entries: ``num_logical / num_referenced`` is the gain of sharing.
    ``num_evicted_total``: blocks whose cached content made room for others, since the start.
    The null block of a model with a window is in none of the numbers.
    """

    num_blocks: int
    num_free: int
    num_cached: int
    num_referenced: int
    num_limbo: int
    num_pinned: int = 0
    num_shared: int = 0
    num_logical: int = 0
    num_waste_slots: int = 0
    num_swap_blocks: int = 0
    num_swap_free: int = 0
    num_swap_cached: int = 0  # nobody's, but the current copy of a device block
    num_swap_referenced: int = 0
    num_swap_limbo: int = 0
    num_evicted_total: int = 0
