# SPDX-License-Identifier: Apache-2.0
"""Which memory holds whose tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from octavo.cache.admission import AdmissionDesk
from octavo.cache.audit import Accounts, BlockAudit, BlockRecord, BlockReport, Reclaimed
from octavo.cache.block_history import BlockHistory
from octavo.cache.block_pool import BlockPool
from octavo.cache.block_table import BlockTable
from octavo.cache.cache_key import CacheKey
from octavo.cache.copy_on_write import CopyOnWrite
from octavo.cache.eviction import make_policy
from octavo.cache.holdings import Holdings
from octavo.cache.pins import Pins
from octavo.cache.prefix_index import Digest, PrefixIndex, chain_digest
from octavo.cache.results import (
    Admission,
    AllocStatus,
    BlockUsage,
    Growth,
    Moves,
    Probe,
    SwapIn,
)
from octavo.cache.step_order import StepOrder
from octavo.cache.swap_pool import SwapPool
from octavo.cache.swapping import Swapper
from octavo.cache.window import Window
from octavo.types.errors import CorruptState

__all__ = [
    "Admission",
    "AllocStatus",
    "BlockManager",
    "BlockUsage",
    "CacheKey",
    "Growth",
    "Moves",
    "Probe",
    "SwapIn",
]


class BlockManager:
    """A block table per sequence: made with what is cached already, grown, forked, swapped, freed.

    Every call is all or nothing, and None for an answer means that nothing changed. Costs are
    O(blocks named or moved), except where stated. One thread calls it.

    The order within a step: answers given between two ``step_submitted`` calls are all for the step
    submitted by the second. Its swap-ins, swap-outs and copies, in that order, happen before
    anything is computed, and steps run one after the other. When a step has run: first
    ``step_completed``, then ``publish`` for its sequences, then ``slide`` for them, then ``free``
    for those that ended.
    """

    digest: Digest = staticmethod(chain_digest)

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        num_swap_blocks: int = 0,
        prefix_caching: bool = True,
        eviction: str = "lru",
        watermark: float = 0.01,
        window: int | None = None,
        history: BlockHistory | None = None,
    ) -> None:
        """``watermark`` is the share of blocks that admission and swap-in leave for the growth of
        what runs already, in [0, 1). ``history`` records what happens to each block.

        ``window``: tokens that a token sees, itself included, when no layer sees more: blocks
        behind it are given up while their sequence lives. One block is then set aside as the
        *null block*, which stands for them in tables and which nobody reads. None sees all.
        """
        least = 1 if window is None else 2  # the null block
        if num_blocks < least:
            raise ValueError(f"num_blocks must be >= {least}, got {num_blocks}")
        if block_size < 1:
            raise ValueError(f"block_size must be >= 1, got {block_size}")
        if not 0 <= watermark < 1:
            raise ValueError(f"watermark must be in [0, 1), got {watermark}")
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.num_watermark_blocks = int(watermark * num_blocks)
        self.window = Window(window, block_size)
        self.history = history
        self._pool = BlockPool(num_blocks, policy=make_policy(eviction), on_gone=self._content_gone)
        self._null = self._pool.take(0 if window is None else 1) or []
        self.num_blocks = num_blocks - len(self._null)
        self._index = PrefixIndex(block_size, on_drop=self._pool.forget, digest=self.digest)
        self._swap = SwapPool(num_swap_blocks)
        self._swapper = Swapper(self._pool, self._swap, block_size, num_set_aside=len(self._null))
        self._tables: dict[int, BlockTable] = {}
        self._pins = Pins(self._pool)
        self._desk = AdmissionDesk(self._pool, self._index, self._pins, self.window)
        self._holdings = Holdings(self._pool, block_size)
        self._order = StepOrder()
        self._writer = CopyOnWrite(self._pool, self._swap, self._order, block_size)
        self._accounts = Accounts(
            pool=self._pool,
            index=self._index,
            swap=self._swap,
            swapper=self._swapper,
            tables=self._tables,
            pinned=self._pins.counts,
            set_aside=tuple(self._null),
        )
        self._audit = BlockAudit(self._accounts, history)

    @property
    def num_slots(self) -> int:
        """Tokens that an empty pool holds."""
        return self.num_blocks * self.block_size

    @property
    def num_available(self) -> int:
        """Blocks that can be handed out now: free, or cached and so evictable."""
        return self._pool.num_available

    def num_blocks_for(self, num_tokens: int) -> int:
        """Entries of a table for so many tokens, hidden ones included."""
        return -(-num_tokens // self.block_size)

    def table(self, seq_id: int) -> BlockTable | None:
        """A sequence's device table, to read; None when it has none."""
        return self._tables.get(seq_id)

    def is_swapped(self, seq_id: int) -> bool:
        return seq_id in self._swapper.tables

    # Admission: a table for a new sequence

    def probe(
        self,
        key: CacheKey,
        token_ids: Sequence[int],
        *,
        num_tokens: int | None = None,
        ignore_watermark: bool = False,
    ) -> Probe:
        """What ``admit`` would find and need for ``num_tokens`` (all of them, if not given).

        Read-only, and no promise: only ``admit`` takes references. One digest per block found.
        """
        wanted = len(token_ids) if num_tokens is None else num_tokens
        num_kept_back = 0 if ignore_watermark else self.num_watermark_blocks
        fit = self._desk.fit(key, token_ids, wanted, num_kept_back=num_kept_back)
        return Probe(fit.num_cached_tokens, fit.num_new_blocks, fit.status)

    def admit(
        self,
        seq_id: int,
        key: CacheKey,
        token_ids: Sequence[int],
        *,
        num_tokens: int,
        ignore_watermark: bool = False,
    ) -> Admission | None:
        """Make a table that holds ``num_tokens``, sharing what is computed already.

        Full blocks that match are shared; of a block that matches in part, the matching slots are
        copied. The last of ``token_ids`` is never taken from the cache: somebody needs its logits.
        """
        self._refuse_second_table(seq_id)
        num_kept_back = 0 if ignore_watermark else self.num_watermark_blocks
        fit = self._desk.fit(key, token_ids, num_tokens, num_kept_back=num_kept_back)
        if fit.status is not AllocStatus.OK:
            return None
        shared = [node.block_id for node in fit.nodes[fit.num_hidden :]]
        hidden = self._null * fit.num_hidden
        source = [fit.partial.block_id] if fit.partial is not None else []
        self._pool.acquire(shared)
        self._pool.acquire(source)  # or taking a fresh block might evict it
        fresh = self._pool.take(fit.num_new_blocks)
        if fresh is None:
            raise CorruptState(f"{fit.num_new_blocks} blocks promised, {self.num_available} there")
        for src in source:
            self._pool.use((src, fresh[0]))
        copies = tuple(self._order.copy(s, fresh[0], fit.num_partial_tokens) for s in source)
        self._pool.release(source)
        self._pool.share(hidden)
        table = BlockTable(self.block_size)
        table.ids = hidden + shared + fresh
        table.num_hidden = fit.num_hidden
        table.chain = list(fit.nodes)
        table.num_tokens = max(num_tokens, fit.num_cached_tokens)
        self._tables[seq_id] = table
        self._record(shared, seq_id, "hit")
        self._record(fresh, seq_id, "admit")
        return Admission(fit.num_cached_tokens, tuple(table.ids), copies)

    def _refuse_second_table(self, seq_id: int) -> None:
        if seq_id in self._tables or seq_id in self._swapper.tables:
            raise CorruptState(f"sequence {seq_id} has a table already")

    def _device_table(self, seq_id: int) -> BlockTable:
        table = self._tables.get(seq_id)
        if table is None:
            raise CorruptState(f"sequence {seq_id} has no table on the device")
        return table

    # Running: growth, forks, publication

    def grow(self, seq_id: int, num_tokens: int, *, write_from: int) -> Growth | None:
        """Make positions [``write_from``, ``num_tokens``) writable by this sequence alone.

        Appends blocks, and replaces those that others see too: sequences, pins, or the prefix
        index. Only the slots before ``write_from`` are copied. The last owner writes in place.
        """
        table = self._device_table(seq_id)
        if write_from < len(table.chain) * self.block_size:
            raise CorruptState(
                f"sequence {seq_id} writes at position {write_from}, below the"
                f" {len(table.chain)} blocks that it has published"
            )
        grown = self._writer.grow(table, num_tokens, write_from)
        if grown is None:
            return None
        growth, given_up = grown
        self._record(given_up, seq_id, "copied_from")
        self._record((block_id for _, block_id in growth.replaced), seq_id, "copied_to")
        self._record(growth.new_blocks, seq_id, "grow")
        return growth

    def num_blocks_missing(
        self, seq_id: int, num_tokens: int, *, write_from: int | None = None
    ) -> int:
        """Blocks that others must give up before ``grow`` succeeds, once the steps in flight have
        completed; below 1: none. ``write_from`` is where the table ends, if not given.
        """
        needed = self.num_blocks_to_grow(seq_id, num_tokens, write_from=write_from)
        return needed - self._pool.num_available - self._pool.num_limbo

    def num_blocks_to_grow(
        self, seq_id: int, num_tokens: int, *, write_from: int | None = None
    ) -> int:
        """Exactly the blocks that ``grow`` would take now."""
        return self._writer.num_needed(self._tables.get(seq_id), num_tokens, write_from)

    def num_exclusive_blocks(self, seq_ids: Sequence[int]) -> int:
        """Blocks that nobody but these sequences references: what preempting them would free."""
        return self._holdings.num_exclusive([self._device_table(seq_id) for seq_id in seq_ids])

    def num_tokens_to_keep(self, seq_id: int, num_wanted: int, num_computed: int) -> int:
        """To how many tokens ``truncate`` must cut, if ``num_wanted`` blocks are to come back from
        the tail, or all that there are; of the others, only what is surely computed is kept.

        0 also when the window has slid too far for the rest to be of use.
        """
        table = self._device_table(seq_id)
        num_kept = self._holdings.num_tokens_to_keep(table, num_wanted, num_computed)
        return num_kept if self.reaches_back(seq_id, num_kept) else 0

    def fork(self, parent_seq_id: int, child_seq_id: int) -> tuple[int, ...]:
        """Give the child the parent's table. References only: no memory, no traffic, no failure.

        A child made in the step that computes the parent's last tokens can write from the next
        step on: the copies of a step come before its computing.
        """
        self._refuse_second_table(child_seq_id)
        table = self._device_table(parent_seq_id).copy()
        self._pool.share(table.ids)
        self._tables[child_seq_id] = table
        self._record(table.ids, child_seq_id, "fork")
        return tuple(table.ids)

    def publish(
        self, seq_id: int, key: CacheKey, token_ids: Sequence[int], num_computed: int
    ) -> None:
        """Make the full blocks among the first ``num_computed`` tokens findable.

        Call it when a step has completed, with what is computed by then: a block that a step is
        still to write must not be found. Idempotent. Content that is findable already keeps its
        older block. A sequence without a table on the device (swapped or preempted since) publishes
        nothing.
        """
        table = self._tables.get(seq_id)
        if table is None or not self.prefix_caching or not table.publishes:
            return
        num_full = min(num_computed // self.block_size, len(table.ids))
        chain = table.chain
        if chain and not chain[-1].is_live:  # an older block that this chain hung on was evicted
            chain.clear()
        if len(chain) < min(num_full, table.num_hidden):  # what it would hang on is gone
            table.publishes = False
            return
        for idx in range(len(chain), num_full):
            if not self._pool.is_settled(table.ids[idx]):
                return  # its first slots are still to be copied, or to be swapped in
            tokens = token_ids[idx * self.block_size : (idx + 1) * self.block_size]
            node = self._index.publish(chain[-1] if chain else None, key, tokens, table.ids[idx])
            if node is None:
                table.publishes = False
                return
            chain.append(node)
            if node.block_id == table.ids[idx]:
                self._pool.retain(node.block_id)
                self._record((node.block_id,), None, "publish")

    def slide(self, seq_id: int, num_computed: int) -> int:
        """Give up the blocks that no position from ``num_computed`` on sees; returns how many.

        Call it after ``publish``, with the same number: a step in flight may see more than those
        after it, and the fences keep that for it. The null block takes their place in the table,
        so the position of every other entry stays. A block that is still to be published waits.
        """
        table = self._tables.get(seq_id)
        if table is None:
            return 0
        begin, end = table.num_hidden, self.window.num_hidden(num_computed)
        if self.prefix_caching and table.publishes:
            end = min(end, len(table.chain))
        if end <= begin:
            return 0
        hidden = table.ids[begin:end]
        table.ids[begin:end] = self._null * (end - begin)
        table.num_hidden = end
        self._pool.share(table.ids[begin:end])
        self._pool.release(hidden)
        self._record(hidden, seq_id, "slide")
        return len(hidden)

    def reaches_back(self, seq_id: int, num_tokens: int) -> bool:
        """Does the table hold all that a token at position ``num_tokens`` sees, so that it may be
        cut there?
        """
        num_hidden = self._device_table(seq_id).num_hidden
        return num_tokens == 0 or num_hidden <= self.window.num_hidden(num_tokens)

    def truncate(self, seq_id: int, num_tokens: int) -> None:
        """Give up the blocks past the first ``num_tokens``; what the others hold stays."""
        table = self._device_table(seq_id)
        if not self.reaches_back(seq_id, num_tokens):
            raise CorruptState(f"sequence {seq_id} cut to {num_tokens} tokens has lost its start")
        num_kept = self.num_blocks_for(num_tokens)
        dropped = table.ids[num_kept:]
        del table.ids[num_kept:]
        table.num_hidden = min(table.num_hidden, num_kept)
        del table.chain[num_tokens // self.block_size :]
        table.num_tokens = min(table.num_tokens, num_tokens)
        self._pool.release(dropped)
        self._record(dropped, seq_id, "truncate")

    def free(self, seq_id: int) -> None:
        """Give up a sequence's references, in both tiers, and its table. Idempotent.

        Findable blocks stay as evictable cache, their tail to be evicted first.
        """
        table = self._tables.pop(seq_id, None)
        if table is not None:
            self._pool.release(table.ids)
            self._record(table.ids, seq_id, "free")
        elif seq_id in self._swapper.tables:
            self._swapper.free(seq_id)

    # Swap

    def plan_swap_out(self, seq_ids: Sequence[int]) -> Moves | None:
        """Move these sequences to the swap tier, each physical block once. None when it lacks room,
        or when one of their blocks is to be filled by a copy of this very step, which would come
        too late.

        A block that a sequence outside ``seq_ids`` uses stays on the device; blocks that stayed
        earlier and that only swapped sequences use by now move along, also for no ``seq_ids``.
        """
        tables = {seq_id: self._device_table(seq_id) for seq_id in seq_ids}
        if any(self._order.copies_into(table.ids) for table in tables.values()):
            return None
        moves = self._swapper.swap_out(tables)
        if moves is not None:
            for seq_id, table in tables.items():
                del self._tables[seq_id]
                self._record(table.ids, seq_id, "swap_out")
        return moves

    def swap_in_status(
        self, seq_ids: Sequence[int], *, extra_blocks: int = 0, ignore_watermark: bool = False
    ) -> AllocStatus:
        """Whether these swapped sequences can come back and find ``extra_blocks`` to grow into.

        LATER for one that is swapped out in the very step being planned.
        """
        return self._swapper.status(
            seq_ids,
            self._pins,
            num_extra=extra_blocks,
            num_kept_back=0 if ignore_watermark else self.num_watermark_blocks,
        )

    def swap_in(self, seq_ids: Sequence[int], *, ignore_watermark: bool = False) -> SwapIn | None:
        """Bring swapped sequences back. Blocks that are still on the device need no transfer."""
        status = self.swap_in_status(seq_ids, ignore_watermark=ignore_watermark)
        if status is not AllocStatus.OK:
            return None
        pairs, tables = self._swapper.swap_in(seq_ids)
        self._tables |= tables
        for seq_id, table in tables.items():
            self._record(table.ids, seq_id, "swap_in")
        return SwapIn(pairs, {seq_id: tuple(table.ids) for seq_id, table in tables.items()})

    # Pins, reset

    def pin(self, key: CacheKey, token_ids: Sequence[int]) -> int:
        """Keep the full blocks cached for these tokens from eviction. Returns the tokens pinned.

        What has not been computed cannot be pinned, nor more than half of all blocks. A second pin
        of the same tokens replaces the first.
        """
        match = self._index.match(key, token_ids, len(token_ids))
        blocks = self._pins.pin(key, token_ids, match.nodes)
        self._record(blocks, None, "pin")
        return len(blocks) * self.block_size

    def unpin(self, key: CacheKey, token_ids: Sequence[int]) -> bool:
        """Undo ``pin``. Returns whether there was one."""
        blocks = self._pins.unpin(key, token_ids)
        self._record(blocks or (), None, "unpin")
        return blocks is not None

    def reset_prefix_cache(self) -> bool:
        """Forget everything that can be found, pins included. O(blocks).

        Sequences that live keep their blocks, but nobody finds them any more, and what these
        sequences compute from here on is not published either: it depends on what was forgotten.
        Returns whether no such block is held any more, so that all memory of the cache is back.
        """
        self._pins.clear()
        is_whole = len(self._index) == self._pool.num_cached
        self._index.clear()
        for table in self._tables.values():
            table.publishes = False
        for swapped in self._swapper.tables.values():
            swapped.publishes = False
        return is_whole

    # Fences

    def step_submitted(self, step_id: int) -> None:
        """Everything answered since the last call is for this step."""
        self._pool.step_submitted(step_id)
        self._swap.pool.step_submitted(step_id)
        self._order.clear()

    def step_completed(self, step_id: int, *, failed: bool = False) -> None:
        """This step, and so every earlier one, touches nothing any more.

        ``failed``: its swaps and copies may not have happened. Its sequences must then be freed,
        not published; here the swap copies that it made are forgotten.
        """
        if failed:
            self._swap.forget_unsettled_copies()
        self._pool.step_completed(step_id)
        self._swap.pool.step_completed(step_id)

    # Accounts

    def usage(self) -> BlockUsage:
        """Blocks by place. O(sequences)."""
        return self._accounts.usage()

    def check(self, seq_ids: set[int] | None = None) -> None:
        """Raise ``CorruptState`` unless every account balances and, if given, exactly ``seq_ids``
        hold blocks. O(blocks): for tests and idle time.
        """
        self._audit.check(seq_ids)

    def report(self, *, num_holders: int = 10) -> BlockReport:
        """The state of all blocks in numbers, and what is wrong with it. O(blocks)."""
        return self._audit.report(num_holders)

    def dump(self) -> list[BlockRecord]:
        """Every block, in full. O(blocks)."""
        return self._audit.dump()

    def explain(self, block_id: int) -> BlockRecord:
        """One block: where it is, who holds it, and, with a history, what last happened to it."""
        return self._audit.explain(block_id)

    def reclaim(self, live_seq_ids: set[int], *, now_s: float, lease_s: float) -> Reclaimed:
        """Take back blocks whose owners are gone, after ``lease_s`` in quarantine. O(blocks).

        ``live_seq_ids`` are all sequences that may hold blocks.
        """
        return self._audit.reclaim(live_seq_ids, self.free, now_s=now_s, lease_s=lease_s)

    def _content_gone(self, block_id: int) -> None:
        self._index.drop(block_id)
        self._order.forget(block_id)
        self._swap.mark_dirty(block_id)

    def _record(self, block_ids: Iterable[int], owner: int | None, operation: str) -> None:
        if self.history is not None:
            self.history.record(block_ids, owner, operation, self._pool.submitted_step_id)
