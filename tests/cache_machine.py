# SPDX-License-Identifier: Apache-2.0
"""Random lives of sequences against an oracle made of dictionaries."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from cache_model import Histories, Memory, Seq, Step, Work
from octavo.cache.block_manager import AllocStatus, BlockManager
from octavo.cache.cache_key import CacheKey
from octavo.cache.prefix_index import Digest, chain_digest
from transitions import CountedMachine

BLOCK_SIZE = 4
NUM_BLOCKS = 10
NUM_SWAP_BLOCKS = 8
DEPTH_MAX = 3
KEYS = (CacheKey(), CacheKey(), CacheKey(salt="other"))

picks = st.integers(0, 1 << 16)
counts = st.integers(1, 2 * BLOCK_SIZE + 1)


class BlockManagerMachine(CountedMachine):
    """Every rule is one call; every plan is run by ``Memory``, as late as a worker may run it."""

    blocks = BlockManager
    digest: Digest = staticmethod(chain_digest)
    eviction = "lru"

    def __init__(self) -> None:
        super().__init__()
        self.manager = self.blocks(
            NUM_BLOCKS,
            BLOCK_SIZE,
            num_swap_blocks=NUM_SWAP_BLOCKS,
            eviction=self.eviction,
            watermark=0.1,
        )
        self.memory = Memory(NUM_BLOCKS, NUM_SWAP_BLOCKS, BLOCK_SIZE)
        self.histories = Histories()
        self.seqs: dict[int, Seq] = {}
        self.tables: dict[int, list[int]] = {}  # of sequences on the device
        self.findable: dict[tuple[CacheKey, tuple[int, ...]], int] = {}  # whole prefix -> block
        self.is_fenced: dict[int, int] = {}  # unreferenced block -> step that must complete
        self.held: set[int] = set()
        self.nulls: set[int] = set()  # blocks that stand for others and count nowhere
        self.pins: dict[tuple[CacheKey, tuple[int, ...]], list[int]] = {}
        self.frozen: set[int] = set()  # sequences that a reset has silenced
        self.newborn: set[int] = set()  # depend on what the step being planned will compute
        self.next_seq_id = 1
        self.plan = Step()
        self.in_flight: deque[Step] = deque()
        self.num_submitted = 0
        self.num_completed = 0

    # What the oracle expects

    def num_hidden(self, num_tokens: int) -> int:
        """Leading blocks that nothing from this position on sees."""
        return 0

    def pick(self, pool: list[int], number: int) -> int:
        return pool[number % len(pool)]

    def on_device(self) -> list[int]:
        return [seq_id for seq_id, seq in self.seqs.items() if not seq.is_swapped]

    def swapped(self) -> list[int]:
        return [seq_id for seq_id, seq in self.seqs.items() if seq.is_swapped]

    def take_note_of_fresh(self, blocks: list[int]) -> None:
        """Blocks were handed out: nobody may be using them, and their old content is gone."""
        for step in [*self.in_flight, self.plan]:
            assert step.touched().isdisjoint(blocks), f"{blocks} are still in use by a step"
        assert len(set(blocks)) == len(blocks)
        assert self.held.isdisjoint(blocks), f"{blocks} belong to somebody"
        self.plan.fresh.update(blocks)
        for prefix in [p for p, block in self.findable.items() if block in blocks]:
            self.forget_from(prefix)

    def forget_from(self, prefix: tuple[CacheKey, tuple[int, ...]]) -> None:
        key, tokens = prefix
        for other in [p for p in self.findable if p[0] == key and p[1][: len(tokens)] == tokens]:
            del self.findable[other]

    def expected_match(self, key: CacheKey, tokens: list[int]) -> tuple[list[int], int]:
        """Blocks of the longest findable chain, and how many tokens of one more block match."""
        limit = len(tokens) - 1
        blocks: list[int] = []
        while (len(blocks) + 1) * BLOCK_SIZE <= limit:
            block = self.findable.get((key, tuple(tokens[: (len(blocks) + 1) * BLOCK_SIZE])))
            if block is None:
                break
            blocks.append(block)
        start = len(blocks) * BLOCK_SIZE
        best = 0
        for other_key, other in self.findable:
            if (other_key, len(other)) != (key, start + BLOCK_SIZE) or other[:start] != tuple(
                tokens[:start]
            ):
                continue
            count = 0
            while start + count < limit and count < BLOCK_SIZE:
                if other[start + count] != tokens[start + count]:
                    break
                count += 1
            best = max(best, count)
        return blocks, best

    # Rules: sequences

    @initialize(number=picks)
    def first(self, number: int) -> None:
        self.manager.check(set())

    @rule(
        number=picks,
        num_tokens=st.integers(1, 5 * BLOCK_SIZE),
        chunk=counts,
        ignore_watermark=st.booleans(),
    )
    def admit(self, number: int, num_tokens: int, chunk: int, ignore_watermark: bool) -> None:
        # Prompts are drawn from three templates with a changed token now and then.
        tokens = [(number // 3 % 3) + 10 * (i // 3) for i in range(num_tokens)]
        if number % 2:
            tokens[number % num_tokens] = 99
        self.start(KEYS[number % len(KEYS)], tokens, chunk, ignore_watermark)

    def start(self, key: CacheKey, tokens: list[int], chunk: int, ignore_watermark: bool) -> None:
        num_tokens = len(tokens)
        before = self.manager.usage()
        probe = self.manager.probe(
            key, tokens, num_tokens=num_tokens, ignore_watermark=ignore_watermark
        )
        assert self.manager.usage() == before
        shared, num_partial = self.expected_match(key, tokens)
        seq_id = self.next_seq_id
        answer = self.manager.admit(
            seq_id, key, tokens, num_tokens=num_tokens, ignore_watermark=ignore_watermark
        )
        assert (answer is not None) == (probe.status is AllocStatus.OK)
        hidden = self.num_hidden(len(shared) * BLOCK_SIZE)
        cached_shared = [block for block in shared[hidden:] if block not in self.held]
        cached_shared = [b for b in cached_shared if self.is_fenced.get(b, 0) <= self.num_completed]
        available = before.num_free + before.num_cached - len(cached_shared)
        num_kept_back = 0 if ignore_watermark else self.manager.num_watermark_blocks
        if self.digest is chain_digest:
            num_new = -(-num_tokens // BLOCK_SIZE) - len(shared)
            assert (answer is not None) == (num_new == 0 or num_new + num_kept_back <= available)
        if answer is None:
            assert self.manager.usage() == before
            return
        self.next_seq_id += 1
        if self.digest is chain_digest:
            assert list(answer.blocks[hidden : len(shared)]) == shared[hidden:]
            full = len(shared) * BLOCK_SIZE
            assert answer.num_cached_tokens in (full, full + num_partial)
            if num_new + 1 + num_kept_back <= available:
                assert answer.num_cached_tokens == full + num_partial
        assert answer.num_cached_tokens < num_tokens
        num_shared = answer.num_cached_tokens // BLOCK_SIZE
        num_shared -= bool(answer.copies) and answer.num_cached_tokens % BLOCK_SIZE == 0
        self.take_note_of_fresh(list(answer.blocks[num_shared:]))
        self.plan.copies += answer.copies
        if answer.copies:
            self.plan.reliant.add(seq_id)
        for copy in answer.copies:
            self.is_fenced[copy.src] = self.num_submitted + 1
        seq = Seq(key, tokens, answer.num_cached_tokens, answer.num_cached_tokens)
        self.seqs[seq_id] = seq
        self.tables[seq_id] = list(answer.blocks)
        self.add_work(seq_id, min(chunk, num_tokens - seq.num_planned))

    def idle(self) -> list[int]:
        """On the device, and free to do something in this plan."""
        busy = self.plan.work.keys() | self.newborn
        return [seq_id for seq_id in self.on_device() if seq_id not in busy]

    @precondition(lambda self: self.idle())
    @rule(number=picks, count=counts, token=st.integers(0, 3))
    def compute(self, number: int, count: int, token: int) -> None:
        seq_id = self.pick(self.idle(), number)
        seq = self.seqs[seq_id]
        while len(seq.tokens) < seq.num_planned + count:
            seq.tokens.append(token)
        self.add_work(seq_id, count)

    def add_work(self, seq_id: int, count: int) -> None:
        seq, table = self.seqs[seq_id], self.tables[seq_id]
        start, end = seq.num_planned, seq.num_planned + count
        before = self.manager.usage()
        needed = self.manager.num_blocks_to_grow(seq_id, end, write_from=start)
        arriving = self.manager.num_blocks_missing(seq_id, end, write_from=start) < 1
        growth = self.manager.grow(seq_id, end, write_from=start)
        assert (growth is not None) == (needed <= before.num_free + before.num_cached)
        if growth is None:
            assert self.manager.usage() == before
            assert arriving == (needed <= before.num_free + before.num_cached + before.num_limbo)
            return
        assert arriving
        self.take_note_of_fresh([*growth.new_blocks, *(block for _, block in growth.replaced)])
        for idx, block in growth.replaced:
            table[idx] = block
        table += growth.new_blocks
        self.plan.copies += growth.copies
        histories = self.histories.of(seq.key, seq.tokens[:end])
        hidden = self.num_hidden(start)
        self.plan.work[seq_id] = Work(seq_id, start, end, histories, list(table), hidden)
        self.plan.reliant.add(seq_id)
        seq.num_planned = end
        self.check_nobody_else_sees(seq_id, start, end)

    def check_nobody_else_sees(self, seq_id: int, start: int, end: int) -> None:
        """No slot that is about to be written is one that another table, pin or prefix covers."""
        written = set(self.tables[seq_id][start // BLOCK_SIZE : -(-end // BLOCK_SIZE)])
        for other_id, table in self.tables.items():
            assert other_id == seq_id or written.isdisjoint(table)
        assert written.isdisjoint(self.findable.values())
        findable = {record.block_id for record in self.manager.dump() if record.digest}
        assert written.isdisjoint(findable)

    @precondition(lambda self: self.on_device())
    @rule(number=picks)
    def fork(self, number: int) -> None:
        parent_id = self.pick(self.on_device(), number)
        parent, child_id = self.seqs[parent_id], self.next_seq_id
        before = self.manager.usage()
        self.next_seq_id += 1
        assert list(self.manager.fork(parent_id, child_id)) == self.tables[parent_id]
        after = self.manager.usage()
        assert (after.num_free, after.num_referenced) == (before.num_free, before.num_referenced)
        tokens = parent.tokens[: parent.num_planned]
        self.seqs[child_id] = Seq(parent.key, tokens, parent.num_planned, parent.num_committed)
        self.tables[child_id] = list(self.tables[parent_id])
        if parent_id in self.frozen:
            self.frozen.add(child_id)
        for step in [*self.in_flight, self.plan]:
            for relying in (step.reliant, step.returned):
                if parent_id in relying:
                    relying.add(child_id)
        if parent_id in self.plan.work or parent_id in self.newborn:
            self.newborn |= {parent_id, child_id}

    @precondition(lambda self: self.seqs)
    @rule(number=picks)
    def free(self, number: int) -> None:
        seq_id = self.pick(list(self.seqs), number)
        if seq_id in self.newborn:
            return self.did_nothing()  # a child waits for what this one computes
        self.give_up(seq_id)

    def give_up(self, seq_id: int) -> None:
        self.manager.free(seq_id)
        self.manager.free(seq_id)
        self.plan.work.pop(seq_id, None)
        self.tables.pop(seq_id, None)
        del self.seqs[seq_id]

    @precondition(lambda self: self.idle())
    @rule(number=picks, chunk=counts)
    def recompute(self, number: int, chunk: int) -> None:
        """Preempted without a swap: all is given up, and begun again with what is cached still."""
        seq_id = self.pick(self.idle(), number)
        seq = self.seqs[seq_id]
        self.give_up(seq_id)
        self.after_each_rule()
        if seq.tokens:
            self.start(seq.key, seq.tokens, chunk, True)

    @precondition(lambda self: self.idle())
    @rule(number=picks, count=st.integers(0, 3 * BLOCK_SIZE))
    def truncate(self, number: int, count: int) -> None:
        seq_id = self.pick(self.idle(), number)
        seq = self.seqs[seq_id]
        kept = max(0, seq.num_planned - count)
        if not self.manager.reaches_back(seq_id, kept):
            return self.did_nothing()
        self.manager.truncate(seq_id, kept)
        del self.tables[seq_id][-(-kept // BLOCK_SIZE) :]
        del seq.tokens[kept:]
        seq.num_planned = kept
        seq.num_committed = min(seq.num_committed, kept)
        for step in self.in_flight:
            if seq_id in step.work:
                step.work[seq_id].num_valid = min(step.work[seq_id].num_valid, kept)

    # Rules: steps

    @precondition(lambda self: len(self.in_flight) < DEPTH_MAX)
    @rule()
    def submit(self) -> None:
        self.num_submitted += 1
        self.manager.step_submitted(self.num_submitted)
        self.in_flight.append(self.plan)
        self.newborn.clear()
        self.plan = Step()

    @precondition(lambda self: self.in_flight)
    @rule()
    def complete(self) -> None:
        step = self.in_flight.popleft()
        self.memory.run(step)
        self.num_completed += 1
        self.manager.step_completed(self.num_completed)
        for seq_id, work in step.work.items():
            seq = self.seqs.get(seq_id)
            if seq is not None:
                seq.num_committed = max(seq.num_committed, work.num_valid)
                self.manager.publish(seq_id, seq.key, seq.tokens, seq.num_committed)
                self.expect_published(seq_id)

    @precondition(lambda self: self.in_flight and self.plan == Step())
    @rule()
    def crash(self) -> None:
        """The oldest step fails: who relied on it ends, and if it moved anything, so does whoever
        is swapped or came back since."""
        step = self.in_flight.popleft()
        self.memory.crash(step)
        self.num_completed += 1
        self.manager.step_completed(self.num_completed, failed=True)
        lost = set(step.reliant)
        has_moved = bool(step.swap_ins or step.swap_outs)
        if has_moved:
            lost.update(seq_id for later in self.in_flight for seq_id in later.returned)
        for later in self.in_flight:
            for seq_id in lost & later.work.keys():
                later.work[seq_id].is_lost = True
        lost.update(self.swapped() if has_moved else ())  # what these computed before was right
        for seq_id in sorted(lost & self.seqs.keys()):
            self.give_up(seq_id)

    def expect_published(self, seq_id: int) -> None:
        seq = self.seqs[seq_id]
        if seq.is_swapped or seq_id in self.frozen:
            return
        unsettled = set().union(*(step.moved() for step in [*self.in_flight, self.plan]))
        for idx in range(min(seq.num_committed // BLOCK_SIZE, len(self.tables[seq_id]))):
            block = self.tables[seq_id][idx]
            held = self.manager.table(seq_id)
            is_chained = held is not None and idx < len(held.chain)
            if block in unsettled and not is_chained:  # else it was published before it was copied
                return
            prefix = (seq.key, tuple(seq.tokens[: (idx + 1) * BLOCK_SIZE]))
            self.findable.setdefault(prefix, block)

    # Rules: swap

    @precondition(lambda self: self.idle())
    @rule(number=picks, group=st.integers(1, 3))
    def swap_out(self, number: int, group: int) -> None:
        idle = self.idle()
        seq_ids = list(dict.fromkeys(self.pick(idle, number + i) for i in range(group)))
        before = self.manager.usage()
        names = Counter(b for seq_id in seq_ids for b in self.tables[seq_id])
        moves = self.manager.plan_swap_out(seq_ids)
        if moves is None:
            assert self.manager.usage() == before
            filled = {copy.dst for copy in self.plan.copies}
            room = before.num_swap_free + before.num_swap_cached
            assert not filled.isdisjoint(names) or len(names) + NUM_BLOCKS > room
            return
        for seq_id in seq_ids:
            self.seqs[seq_id].is_swapped = True
            del self.tables[seq_id]
        devices = [device for device, _ in moves.pairs]
        assert len(set(devices)) == len(devices), "a shared block moved twice"
        self.take_note_of_fresh_swap([swap for _, swap in moves.pairs])
        others = {b for table in self.tables.values() for b in table}
        others |= {b for blocks in self.pins.values() for b in blocks}
        assert others.isdisjoint(devices), "a block left the device although somebody uses it"
        self.plan.swap_outs += moves.pairs

    def take_note_of_fresh_swap(self, blocks: list[int]) -> None:
        for step in [*self.in_flight, self.plan]:
            assert step.moved_swap().isdisjoint(blocks), f"swap blocks {blocks} are still in use"

    @precondition(lambda self: self.swapped())
    @rule(number=picks, group=st.integers(1, 3), ignore_watermark=st.booleans())
    def swap_in(self, number: int, group: int, ignore_watermark: bool) -> None:
        swapped = self.swapped()
        seq_ids = list(dict.fromkeys(self.pick(swapped, number + i) for i in range(group)))
        before = self.manager.usage()
        status = self.manager.swap_in_status(seq_ids, ignore_watermark=ignore_watermark)
        answer = self.manager.swap_in(seq_ids, ignore_watermark=ignore_watermark)
        assert (answer is not None) == (status is AllocStatus.OK)
        if answer is None:
            assert self.manager.usage() == before
            return
        self.take_note_of_fresh([device for _, device in answer.pairs])
        self.plan.swap_ins += answer.pairs
        for seq_id in seq_ids:
            self.seqs[seq_id].is_swapped = False
            self.tables[seq_id] = list(answer.tables[seq_id])
            self.plan.returned.add(seq_id)
            self.plan.reliant.add(seq_id)

    @precondition(lambda self: self.idle() and not self.plan.work)
    @rule(number=picks, count=counts, token=st.integers(0, 3))
    def swap_round_trip(self, number: int, count: int, token: int) -> None:
        """Out, in, and on: chance alone rarely finds all three for one sequence."""
        self.swap_out(number, 1)
        self.after_each_rule()
        if len(self.in_flight) == DEPTH_MAX:
            self.complete()
            self.after_each_rule()
        self.submit()
        if self.swapped():
            self.swap_in(len(self.swapped()) - 1, 1, True)
            self.after_each_rule()
        if self.idle():
            self.compute(len(self.idle()) - 1, count, token)

    # Rules: cache

    @precondition(lambda self: self.seqs)
    @rule(number=picks)
    def pin(self, number: int) -> None:
        if self.digest is not chain_digest:
            return self.did_nothing()  # the oracle does not know which blocks it would find
        seq = self.seqs[self.pick(list(self.seqs), number)]
        num_tokens = self.manager.pin(seq.key, seq.tokens)
        name = (seq.key, tuple(seq.tokens))
        self.pins.pop(name, None)
        if num_tokens:
            self.pins[name] = [
                self.findable[seq.key, tuple(seq.tokens[: end + BLOCK_SIZE])]
                for end in range(0, num_tokens, BLOCK_SIZE)
            ]

    @precondition(lambda self: self.pins)
    @rule(number=picks)
    def unpin(self, number: int) -> None:
        name = list(self.pins)[number % len(self.pins)]
        del self.pins[name]
        assert self.manager.unpin(*name)
        assert not self.manager.unpin(*name)

    @precondition(lambda self: len(self.findable) > 4)
    @rule(number=picks)
    def reset(self, number: int) -> None:
        if number % 3:
            return self.did_nothing()  # rarely, or nothing would ever be found
        self.manager.reset_prefix_cache()
        self.pins.clear()
        self.findable.clear()
        self.frozen |= self.seqs.keys()
        assert self.manager.usage().num_cached == 0

    # After every rule

    def check_all(self) -> None:
        self.manager.check(set(self.seqs))
        usage = self.manager.usage()
        free = usage.num_free + usage.num_cached + usage.num_referenced + usage.num_limbo
        assert free == self.manager.num_blocks
        swap = usage.num_swap_free + usage.num_swap_cached + usage.num_swap_referenced
        assert swap + usage.num_swap_limbo == NUM_SWAP_BLOCKS
        for seq_id, table in self.tables.items():
            held = self.manager.table(seq_id)
            assert held is not None
            assert held.ids == table
        self.expect_places()

    def expect_places(self) -> None:
        """Recompute from the tables alone who holds what and what waits for a step."""
        held = {block for table in self.tables.values() for block in table}
        held |= {block for blocks in self.pins.values() for block in blocks}
        for record in self.manager.dump():
            if any(self.seqs[owner].is_swapped for owner in record.owners):
                held.add(record.block_id)
        held -= self.nulls
        for block in self.held - held:
            fence = self.num_submitted if self.in_flight else 0
            self.is_fenced[block] = max(
                fence, self.num_submitted + 1 if block in self.plan.moved() else 0
            )
        self.held = held
        usage = self.manager.usage()
        assert usage.num_referenced == len(held)
        limbo = {
            block
            for block in range(NUM_BLOCKS)
            if block not in held and self.is_fenced.get(block, 0) > self.num_completed
        }
        assert usage.num_limbo == len(limbo)
        if self.digest is chain_digest:
            cached = set(self.findable.values()) - held - limbo
            assert usage.num_cached == len(cached)
