# SPDX-License-Identifier: Apache-2.0
"""A worker that computes nothing and trusts nobody: the oracle of the whole control plane.

In a transformer the cache entry of a token depends on that token and on every one before it. So
here a slot holds a token and the hash of all that stands before it in its sequence: an entry that
is right for one sequence is wrong for any other, at any other position, and after any other past.
Each row knows its own history, and at every work its table is read back and must hold just that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from echo_parts import (
    POISON,
    VOCAB_SIZE,
    Memory,
    PlanError,
    Row,
    Rule,
    Slot,
    checksum_rule,
    expected_tokens,
    ruled,
    want,
)
from octavo.types.errors import StepFailed
from octavo.types.step import (
    BlockCopy,
    RowOpen,
    RowResult,
    RowSampling,
    RowWork,
    StepPlan,
    StepResult,
    TokenLogprobs,
)

__all__ = ["EchoExecutor", "PlanError", "checksum_rule", "expected_tokens"]

FAILED_BEFORE = "the row failed in an earlier step"


class EchoExecutor:
    """Every plan is held against the contract, and against what memory holds, before it counts:
    ``PlanError`` names the breach. The next token is a rule over the tokens that a row reads back.

    Caught among others: a block handed out while a step in flight may touch it, or while another
    row has it; a write to a slot that another row counts on (a missing copy-on-write); a copy of
    too few slots, or from the wrong block; a hit on a block whose content is another; swap moves
    from or to the wrong block; a fork from a row that does not end where its child starts.
    What it cannot know is which request a row stands for: a table that is right for another request
    gives that one's answer, which differs from ``expected_tokens``.

    A plan runs when it is submitted, so in order; its result waits to be collected, and until then
    what its step touches counts as in use. ``fail_steps`` names steps whose collection raises
    ``StepFailed``: rows are closed and opened, memory that the step writes is rubbish, and the rows
    that it opens or works on answer errors until they are closed. ``row_errors`` maps
    (step_id, row) to a message for that row alone. ``gate`` runs in ``collect``, for tests of
    threads. ``exact_growth``: a row is given no block that it does not write to at once.

    With a ``window`` a row reads its last ``window`` positions only, itself included; blocks before
    them may be anybody's. Then the rule must not look at older tokens (``windowed_rule``).
    """

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 8,
        num_rows: int = 16,
        num_swap_blocks: int = 0,
        depth: int = 1,
        rule: Rule = checksum_rule,
        gate: Callable[[], None] = lambda: None,
        exact_growth: bool = True,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_rows = num_rows
        self.num_swap_blocks = num_swap_blocks
        self.depth = depth
        self.exact_growth = exact_growth
        self.window: int | None = None
        self.plans: list[StepPlan] = []
        self.fail_steps: set[int] = set()
        self.row_errors: dict[tuple[int, int], str] = {}
        self.is_closed = False
        self._rule = rule
        self._gate = gate
        self._device = Memory(num_blocks, block_size)
        self._swap = Memory(num_swap_blocks, block_size)
        self._swapped_out: set[int] = set()  # swap blocks that hold anything
        self._rows: dict[int, Row] = {}
        self._owners: list[dict[int, int]] = [{} for _ in range(num_blocks)]  # row to table index
        self._results: deque[StepResult | StepFailed] = deque()
        self._last_id = 0
        self._collected_id = 0

    @property
    def open_rows(self) -> set[int]:
        return set(self._rows)

    def submit(self, plan: StepPlan) -> None:
        want(not self.is_closed, "submit after close")
        want(len(self._results) < self.depth, f"more than {self.depth} plans in flight")
        want(plan.step_id == self._last_id + 1, f"step {plan.step_id} after {self._last_id}")
        is_empty = not (plan.work or plan.swap_ins or plan.swap_outs or plan.copies)
        want(not is_empty or bool(plan.closed), "a plan without work")
        self.plans.append(plan)
        self._last_id = plan.step_id
        self._forget_hidden()
        self._close(plan)
        self._check_given(plan)
        self._open(plan)
        for work in plan.work:
            self._extend_table(work, plan.step_id)
        self._check_forks(plan)
        self._move(plan)
        if plan.step_id in self.fail_steps:
            self._fail(plan)
            self._results.append(StepFailed(f"step {plan.step_id} failed on purpose"))
        else:
            self._results.append(StepResult(plan.step_id, self._compute_all(plan)))

    def collect(self) -> StepResult:
        want(bool(self._results), "collect without a plan in flight")
        self._gate()
        result = self._results.popleft()
        self._collected_id += 1
        if isinstance(result, StepFailed):
            raise result
        return result

    def close(self) -> None:
        self.is_closed = True

    # Rows and their tables.

    def _close(self, plan: StepPlan) -> None:
        for row_id in plan.closed:
            want(row_id in self._rows, f"row {row_id} is closed but not open")
            row = self._rows.pop(row_id)
            self._device.use(row.blocks[row.num_hidden :], row.last_step_id)
            for block_id in row.blocks[row.num_hidden :]:
                self._owners[block_id].pop(row_id, None)

    def _num_hidden(self, num_computed: int) -> int:
        """Leading blocks that no position from there on sees."""
        window = self.window or num_computed + 1
        return max(0, num_computed - window + 1) // self.block_size

    def _forget_hidden(self) -> None:
        for row_id, row in self._rows.items():
            num_hidden = self._num_hidden(row.num_computed)
            for block_id in row.blocks[row.num_hidden : num_hidden]:
                self._device.use([block_id], row.last_step_id)
                del self._owners[block_id][row_id]
            row.num_hidden = max(row.num_hidden, num_hidden)

    def _open(self, plan: StepPlan) -> None:
        for opened in plan.opened:
            want(0 <= opened.row < self.num_rows, f"no row {opened.row}")
            want(opened.row not in self._rows, f"row {opened.row} is opened twice")
            self._check_opened(opened)
            row = Row(opened.sampling, list(opened.blocks), opened.num_computed)
            row.history, row.num_prompt = list(opened.history), opened.num_prompt
            row.is_unread = opened.num_computed > 0
            row.num_hidden = self._num_hidden(opened.num_computed)
            self._rows[opened.row] = row
            self._own(opened.row, row, row.num_hidden)

    def _check_opened(self, opened: RowOpen) -> None:
        num_known, needs = len(opened.history), opened.sampling.needs_history
        want(0 <= opened.num_prompt <= num_known, f"row {opened.row} has {num_known} tokens known")
        want(needs or not num_known, f"row {opened.row} is told a history that it does not need")
        want(num_known >= opened.num_computed or not needs, f"row {opened.row} has no history")
        num_slots = len(opened.blocks) * self.block_size
        want(
            0 <= opened.num_computed <= num_slots,
            f"row {opened.row} is opened with {opened.num_computed} tokens in {num_slots} slots",
        )
        seen = opened.blocks[self._num_hidden(opened.num_computed) :]
        want(len(set(seen)) == len(seen), f"row {opened.row} has a block twice")
        for block_id in opened.blocks:
            want(0 <= block_id < self.num_blocks, f"no block {block_id}")
        num_filled = -(-opened.num_computed // self.block_size)
        for block_id in opened.blocks[num_filled:]:
            if not self._owners[block_id]:  # else it is shared with the row that it forks from
                self._check_idle(block_id)

    def _own(self, row_id: int, row: Row, first_idx: int) -> None:
        for table_idx in range(first_idx, len(row.blocks)):
            self._owners[row.blocks[table_idx]][row_id] = table_idx

    def _check_idle(self, block_id: int) -> None:
        is_idle = self._device.busy_until.get(block_id, 0) <= self._collected_id
        want(is_idle, f"block {block_id} is given out while a step may use it")

    def _check_given(self, plan: StepPlan) -> None:
        """Blocks that somebody gets to write to are nobody else's, and no step in flight's."""
        given = [block_id for work in plan.work for block_id in work.new_blocks]
        given += [block_id for work in plan.work for _, block_id in work.replaced]
        want(len(set(given)) == len(given), f"a block is given out twice: {sorted(given)}")
        moved = [copy.dst for copy in plan.copies] + [dst for _, dst in plan.swap_ins]
        want(len(set(moved)) == len(moved), f"a block is moved to twice: {sorted(moved)}")
        for block_id in (*given, *moved):
            want(0 <= block_id < self.num_blocks, f"no block {block_id}")
            owners = self._owners[block_id]
            want(not owners, f"block {block_id} is given out and belongs to rows {[*owners]}")
            self._check_idle(block_id)

    def _extend_table(self, work: RowWork, step_id: int) -> None:
        """Check one row's work against the row, and change its table."""
        want(work.row in self._rows, f"row {work.row} works but is not open")
        row = self._rows[work.row]
        want(row.last_step_id < step_id, "a row works twice")
        row.last_step_id = step_id
        self._check_tokens(work, row)
        for table_idx, block_id in work.replaced:
            want(0 <= table_idx < len(row.blocks), f"row {work.row} has no entry {table_idx}")
            old_id, row.blocks[table_idx] = row.blocks[table_idx], block_id
            want(old_id != block_id, f"block {block_id} replaces itself")
            self._device.use([old_id], step_id - 1)
            del self._owners[old_id][work.row]
            self._owners[block_id][work.row] = table_idx
        num_old = len(row.blocks)
        row.blocks += work.new_blocks
        self._own(work.row, row, num_old)
        end, num_slots = work.start + work.num_tokens, len(row.blocks) * self.block_size
        want(end <= num_slots, f"row {work.row} needs {end} slots and has {num_slots}")
        is_spare = bool(work.new_blocks) and num_slots - end >= self.block_size
        want(
            not (is_spare and self.exact_growth),
            f"row {work.row} has a block that it does not need",
        )

    def _check_tokens(self, work: RowWork, row: Row) -> None:
        want(work.start == row.num_computed, f"start {work.start}, but {row.num_computed} computed")
        want(len(work.targets) <= work.num_tokens, "more targets than tokens")
        num_bytes = (VOCAB_SIZE + 7) // 8
        want(len(work.allowed) in (0, num_bytes), f"a mask of {len(work.allowed)} bytes")
        if work.logits_of is not None:
            want(work.num_tokens == 0 == len(work.token_ids), "a fork computes nothing")
            want(work.samples, f"row {work.row} forks and does not sample")
            return
        want(work.num_tokens >= 1, f"row {work.row} computes {work.num_tokens} tokens")
        if work.token_ids:
            want(len(work.token_ids) == work.num_tokens, "token_ids and num_tokens differ")
        else:
            want(work.num_tokens == 1, "a decode computes one token")
            want(
                row.last_sample is not None or row.has_failed,
                f"row {work.row} decodes but never sampled",
            )

    def _check_forks(self, plan: StepPlan) -> None:
        by_row = {work.row: work for work in plan.work}
        for work in plan.work:
            if work.logits_of is None:
                continue
            parent = by_row.get(work.logits_of)
            name = f"row {work.row} forks from row {work.logits_of}"
            want(parent is not None and parent.num_tokens > 0, f"{name}, which computes nothing")
            assert parent is not None
            want(parent.samples, f"{name}, which does not sample")
            end = parent.start + parent.num_tokens
            want(end == work.start, f"{name}, which ends at {end}, but starts at {work.start}")

    # Memory.

    def _move(self, plan: StepPlan) -> None:
        """Swap-ins, swap-outs, copies."""
        self._check_moves(plan)
        fails = plan.step_id in self.fail_steps
        for swap_id, block_id in plan.swap_ins:
            self._device.blocks[block_id] = list(self._swap.blocks[swap_id])
            self._swap.use([swap_id], plan.step_id)
        for block_id, swap_id in plan.swap_outs:
            self._swap.blocks[swap_id] = list(self._device.blocks[block_id])
            self._swapped_out.add(swap_id)
            self._device.use([block_id], plan.step_id)
        for copy in plan.copies:
            self._copy(copy)
            self._device.use([copy.src], plan.step_id)
        if fails:
            for block_id in [dst for _, dst in plan.swap_ins] + [c.dst for c in plan.copies]:
                self._device.spoil(block_id)
            for _, swap_id in plan.swap_outs:
                self._swap.spoil(swap_id)

    def _check_moves(self, plan: StepPlan) -> None:
        arriving = {dst for _, dst in plan.swap_ins}
        for swap_id, _ in plan.swap_ins:
            want(0 <= swap_id < self.num_swap_blocks, f"no swap block {swap_id}")
            is_written = swap_id in self._swapped_out
            want(is_written, f"swap block {swap_id} is read but was never written")
        written = [swap_id for _, swap_id in plan.swap_outs]
        want(len(set(written)) == len(written), f"a swap block is written twice: {written}")
        want(
            not set(written) & {swap_id for swap_id, _ in plan.swap_ins},
            "a swap block is read and written in one step",
        )
        for block_id, swap_id in plan.swap_outs:
            want(0 <= swap_id < self.num_swap_blocks, f"no swap block {swap_id}")
            want(0 <= block_id < self.num_blocks, f"no block {block_id}")
            want(block_id not in arriving, f"block {block_id} is swapped in and out in one step")
            is_idle = self._swap.busy_until.get(swap_id, 0) <= self._collected_id
            want(is_idle, f"swap block {swap_id} is written while a step may read it")

    def _copy(self, copy: BlockCopy) -> None:
        want(0 <= copy.src < self.num_blocks, f"no block {copy.src}")
        want(0 < copy.num_tokens <= self.block_size, f"a copy of {copy.num_tokens} tokens")
        slots = self._device.blocks[copy.src][: copy.num_tokens]
        want(None not in slots, f"{copy} copies slots that were never written")
        rest: list[Slot | None] = [None] * (self.block_size - copy.num_tokens)
        self._device.blocks[copy.dst] = slots + rest
        want(bool(self._owners[copy.dst]), f"block {copy.dst} is copied to and no row's")

    def _read(self, row: Row) -> list[Slot | None]:
        """Every slot that the row has filled; those of hidden blocks as it remembers them."""
        slots: list[Slot | None] = list(row.slots[: row.num_hidden * self.block_size])
        slots += [None] * (row.num_hidden * self.block_size - len(slots))
        for block_id in row.blocks[row.num_hidden : -(-row.num_computed // self.block_size)]:
            slots += self._device.blocks[block_id]
        del slots[row.num_computed :]
        return slots

    def _read_history(self, row_id: int, row: Row) -> None:
        """The history of a row that was opened over tokens: each slot must continue the one before
        it."""
        slots = self._read(row)
        num_hidden = row.num_hidden * self.block_size
        past: int | None = None if num_hidden else 0  # None: known to those who have seen it
        row.slots = [POISON] * num_hidden
        row.tokens = [0] * num_hidden
        is_rubbish = POISON in slots  # left by a step that failed: this row's answers are, too
        for position, slot in enumerate(slots[num_hidden:], num_hidden):
            want(slot is not None, f"row {row_id}: position {position} was never written")
            assert slot is not None
            follows = is_rubbish or past is None or slot[0] == hash((past, slot[1]))
            want(follows, f"row {row_id}: position {position} does not follow what is before it")
            past = slot[0]
            row.slots.append(slot)
            row.tokens.append(slot[1])
        row.is_unread = False

    def _verify(self, row_id: int, row: Row) -> None:
        slots = self._read(row)
        if slots == row.slots:
            return
        position = next(
            i for i, pair in enumerate(zip(slots, row.slots, strict=True)) if pair[0] != pair[1]
        )
        block_id = row.blocks[position // self.block_size]
        raise PlanError(
            f"row {row_id}: position {position}, in block {block_id}, holds {slots[position]}"
            f" and not this row's {row.slots[position]}"
        )

    def _check_writes(self, plan: StepPlan) -> None:
        """No slot that is written may be one that another row counts on; no block is written by
        two rows."""
        writers: dict[int, int] = {}
        forks = {work.row: work.logits_of for work in plan.work}
        for work in plan.work:
            for block_id, first in self._written(work):
                writer = writers.setdefault(block_id, work.row)
                want(writer == work.row, f"rows {writer} and {work.row} write to block {block_id}")
                for other, table_idx in self._owners[block_id].items():
                    if other == work.row or forks.get(other) == work.row:
                        continue
                    num_held = self._rows[other].num_computed - table_idx * self.block_size
                    want(
                        num_held <= first,
                        f"row {work.row} writes to slot {first} of block {block_id}, of which row"
                        f" {other} holds {num_held} slots: no copy-on-write",
                    )

    def _written(self, work: RowWork) -> Iterator[tuple[int, int]]:
        """The blocks that a work writes to, each with the first slot written."""
        blocks, position = self._rows[work.row].blocks, work.start
        while position < work.start + work.num_tokens:
            table_idx, first = divmod(position, self.block_size)
            yield blocks[table_idx], first
            position += self.block_size - first

    def _write(self, row: Row, start: int, slots: Sequence[Slot]) -> None:
        done = 0
        while done < len(slots):
            table_idx, offset = divmod(start + done, self.block_size)
            piece = slots[done : done + self.block_size - offset]
            self._device.blocks[row.blocks[table_idx]][offset : offset + len(piece)] = piece
            done += len(piece)

    # Computing.

    def _compute_all(self, plan: StepPlan) -> tuple[RowResult, ...]:
        forks = {work.row for work in plan.work if work.logits_of is not None}
        for row_id in [opened.row for opened in plan.opened if opened.row not in forks]:
            if self._rows[row_id].is_unread:
                self._read_history(row_id, self._rows[row_id])
        for work in plan.work:
            row = self._rows[work.row]
            if not row.has_failed and not row.is_unread:
                self._verify(work.row, row)
        self._check_writes(plan)
        errors = {work.row: self._error_of(plan, work) for work in plan.work}
        for work in plan.work:
            if work.logits_of is None:
                self._store(work, failed=errors[work.row] is not None)
        return tuple(self._answer(work, errors) for work in plan.work)

    def _error_of(self, plan: StepPlan, work: RowWork) -> str | None:
        before = FAILED_BEFORE if self._rows[work.row].has_failed else None
        return before or self.row_errors.get((plan.step_id, work.row))

    def _store(self, work: RowWork, *, failed: bool) -> None:
        row = self._rows[work.row]
        if failed:
            new = [POISON] * work.num_tokens
            row.slots += new
            row.tokens += [0] * work.num_tokens
        else:
            assert work.token_ids or row.last_sample is not None
            new = row.extend(work.token_ids or [row.last_sample])  # type: ignore[list-item]
        self._write(row, work.start, new)
        row.num_computed += work.num_tokens

    def _answer(self, work: RowWork, errors: dict[int, str | None]) -> RowResult:
        row = self._rows[work.row]
        error = errors[work.row]
        if work.logits_of is not None:
            error = error or errors[work.logits_of]
        if error is not None:
            row.has_failed = True
            row.last_sample = 0
            return RowResult(work.row, error=error)
        if work.logits_of is not None:
            self._join(work, row)
        scored = tuple(self._logprobs(target, row.sampling) for target in work.targets)
        row.last_sample = None
        if not work.samples:
            return RowResult(work.row, scored=scored)
        token_id = self._sample(work, row)
        if token_id is None:
            row.has_failed = True
            row.last_sample = 0
            return RowResult(work.row, error="the settings leave no token")
        row.last_sample = token_id
        wants = row.sampling.num_logprobs is not None
        logprobs = self._logprobs(row.last_sample, row.sampling) if wants else None
        return RowResult(work.row, row.last_sample, logprobs, scored)

    def _sample(self, work: RowWork, row: Row) -> int | None:
        """None when the row's settings and mask leave nothing."""
        needs = row.sampling.needs_history
        want(not needs or row.history == row.tokens, f"row {work.row} has another history")
        chosen = self._rule(row.tokens, row.sampling)
        token_id = ruled(chosen, row.tokens, row.num_prompt, row.sampling, work.allowed)
        if needs and token_id is not None:
            row.history.append(token_id)
        return token_id

    def _join(self, work: RowWork, row: Row) -> None:
        """A fork samples from its parent's logits, so its past must be its parent's."""
        assert work.logits_of is not None
        parent = self._rows[work.logits_of]
        if row.is_unread:
            row.slots, row.tokens = list(parent.slots), list(parent.tokens)
            row.is_unread = False
        self._verify(work.row, row)
        first = max(row.num_hidden, parent.num_hidden) * self.block_size
        same = row.slots[first:] == parent.slots[first:]
        want(same, f"row {work.row} forks from row {work.logits_of} and has another past")

    def _fail(self, plan: StepPlan) -> None:
        """Rows go on with rubbish: plans in flight may still name them, and must not matter."""
        self._check_writes(plan)
        for opened in plan.opened:
            row = self._rows[opened.row]
            row.has_failed = True
            row.is_unread = False
            row.slots = [POISON] * row.num_computed
            row.tokens = [0] * row.num_computed
        for work in plan.work:
            self._rows[work.row].has_failed = True
            self._store(work, failed=True)

    def _logprobs(self, token_id: int, sampling: RowSampling) -> TokenLogprobs:
        """Token t always has logprob -t/8 and rank t + 1, so the likeliest are 0, 1, 2..."""
        top = tuple((other, -other / 8) for other in range(sampling.num_logprobs or 0))
        return TokenLogprobs(token_id, -token_id / 8, token_id + 1, top)
