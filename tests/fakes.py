# SPDX-License-Identifier: Apache-2.0
"""Small, complete stand-ins for the ports: a clock, a tokenizer, a worker that trusts nobody."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo.types.errors import InvalidRequest, StepFailed
from octavo.types.step import (
    RowResult,
    RowSampling,
    RowWork,
    StepPlan,
    StepResult,
    TokenLogprobs,
)


class ManualClock:
    """Shows what it is told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class ByteTokenizer:
    """Ids 0-255 are bytes; 256 begins, 257 ends a sequence, 258 ends a turn."""

    vocab_size = 259
    bos_token_id = 256
    eos_token_id = 257
    stop_token_ids = frozenset({257, 258})
    chat_template = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        kept = [t for t in token_ids if not (skip_special_tokens and self.is_special(t))]
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else f"<{token_id}>".encode()

    def is_special(self, token_id: int) -> bool:
        return token_id >= 256

    def render_chat(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> str:
        raise InvalidRequest("the byte tokenizer has no chat template")


class PlanError(AssertionError):
    """A plan broke the contract of ``octavo.types.step``."""


def checksum_rule(tokens: Sequence[int], sampling: RowSampling) -> int:
    """A byte that depends on every token before it, their order, and the seed unless greedy."""
    total = len(tokens)
    for position, token_id in enumerate(tokens):
        total += (position + 1) * (token_id + 7)
    if sampling.temperature > 0:
        total += (sampling.seed + sampling.sample_idx) * (2 * len(tokens) + 1)
    return total % 256


def expected_tokens(
    prompt: Sequence[int],
    num_tokens: int,
    sampling: RowSampling | None = None,
    rule: Callable[[Sequence[int], RowSampling], int] = checksum_rule,
) -> list[int]:
    """What an ``EchoExecutor`` with this rule answers to a prompt, had it run alone."""
    sampling = sampling or RowSampling()
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(_unbanned(rule(tokens, sampling), len(tokens), sampling))
    return tokens[len(prompt) :]


def _unbanned(token_id: int, position: int, sampling: RowSampling) -> int:
    while position < sampling.banned_until and token_id in sampling.banned_ids:
        token_id = (token_id + 1) % ByteTokenizer.vocab_size
    return token_id


@dataclass
class _Row:
    sampling: RowSampling
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    last_sample: int | None = None


class EchoExecutor:
    """A worker whose "KV cache" stores the token ids themselves, slot by slot.

    The next token is a rule over what a row reads back *through its block table*, so a block that
    was handed out too early, twice, or not at all changes the answer. And each plan is held against
    the contract before it runs: ``PlanError`` names what is wrong.

    A plan runs when it is submitted; with ``depth`` above 1 its result waits to be collected, and
    its blocks count as in use until then. ``fail_steps`` names steps whose collection raises
    ``StepFailed`` (rows are still closed and opened, nothing is computed); ``row_errors`` maps
    (step_id, row) to a message for that row alone. ``gate`` runs in ``collect``, for tests of
    threads.
    """

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 8,
        num_rows: int = 16,
        depth: int = 1,
        rule: Callable[[Sequence[int], RowSampling], int] = checksum_rule,
        gate: Callable[[], None] = lambda: None,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_rows = num_rows
        self.depth = depth
        self.plans: list[StepPlan] = []
        self.fail_steps: set[int] = set()
        self.row_errors: dict[tuple[int, int], str] = {}
        self.is_closed = False
        self._rule = rule
        self._gate = gate
        self._rows: dict[int, _Row] = {}
        self._slots: list[int | None] = [None] * (num_blocks * block_size)
        # Results not yet collected, each with the blocks that its step may touch.
        self._results: deque[tuple[StepResult | StepFailed, set[int]]] = deque()

    @property
    def open_rows(self) -> set[int]:
        return set(self._rows)

    def submit(self, plan: StepPlan) -> None:
        _want(not self.is_closed, "submit after close")
        _want(len(self._results) < self.depth, f"more than {self.depth} plans in flight")
        last_id = self.plans[-1].step_id if self.plans else 0
        _want(plan.step_id == last_id + 1, f"step {plan.step_id} after {last_id}")
        _want(bool(plan.work), "a plan without work")
        self.plans.append(plan)
        self._close_and_open(plan)
        _want(len({work.row for work in plan.work}) == len(plan.work), "a row works twice")
        touched: set[int] = set()
        for work in plan.work:
            self._extend(work)
            touched |= set(self._rows[work.row].blocks)
        self._check_owners(plan)
        if plan.step_id in self.fail_steps:
            for work in plan.work:
                self._spoil(work)
            self._results.append((StepFailed(f"step {plan.step_id} failed on purpose"), touched))
        else:
            rows = tuple(self._compute(plan.step_id, work) for work in plan.work)
            self._results.append((StepResult(plan.step_id, rows), touched))

    def collect(self) -> StepResult:
        _want(bool(self._results), "collect without a plan in flight")
        self._gate()
        result, _ = self._results.popleft()
        if isinstance(result, StepFailed):
            raise result
        return result

    def close(self) -> None:
        self.is_closed = True

    def _close_and_open(self, plan: StepPlan) -> None:
        for row in plan.closed:
            _want(row in self._rows, f"row {row} is closed but not open")
            del self._rows[row]
        for opened in plan.opened:
            _want(0 <= opened.row < self.num_rows, f"no row {opened.row}")
            _want(opened.row not in self._rows, f"row {opened.row} is opened twice")
            self._rows[opened.row] = _Row(opened.sampling)

    def _extend(self, work: RowWork) -> None:
        """Check one row's work against the row, and append its blocks."""
        _want(work.row in self._rows, f"row {work.row} works but is not open")
        row = self._rows[work.row]
        _want(work.num_tokens >= 1, f"row {work.row} computes {work.num_tokens} tokens")
        _want(
            work.start == row.num_computed, f"start {work.start}, but {row.num_computed} computed"
        )
        for block_id in work.new_blocks:
            _want(0 <= block_id < self.num_blocks, f"no block {block_id}")
            in_flight = any(block_id in touched for _, touched in self._results)
            _want(not in_flight, f"block {block_id} is given out while a step may use it")
        row.blocks += work.new_blocks
        end, num_slots = work.start + work.num_tokens, len(row.blocks) * self.block_size
        _want(end <= num_slots, f"row {work.row} needs {end} slots and has {num_slots}")
        _want(
            num_slots - end < self.block_size, f"row {work.row} has a block that it does not need"
        )
        if work.token_ids:
            _want(len(work.token_ids) == work.num_tokens, "token_ids and num_tokens differ")
        else:
            _want(work.num_tokens == 1, "a decode computes one token")
            _want(row.last_sample is not None, f"row {work.row} decodes but never sampled")
        _want(len(work.targets) <= work.num_tokens, "more targets than tokens")

    def _check_owners(self, plan: StepPlan) -> None:
        """No block that is written in this step may be in the table of another open row."""
        owner = {}
        for row_id, row in self._rows.items():
            for block_id in row.blocks:
                other = owner.setdefault(block_id, row_id)
                _want(other == row_id, f"block {block_id} belongs to rows {other} and {row_id}")

    def _compute(self, step_id: int, work: RowWork) -> RowResult:
        error = self.row_errors.get((step_id, work.row))
        if error is not None:
            self._spoil(work)
            return RowResult(work.row, error=error)
        row = self._rows[work.row]
        token_ids = work.token_ids or (row.last_sample,)
        for position, token_id in enumerate(token_ids, work.start):
            self._slots[self._slot(row, position)] = token_id
        row.num_computed += work.num_tokens
        scored = tuple(self._logprobs(target, row.sampling) for target in work.targets)
        if not work.samples:
            return RowResult(work.row, scored=scored)
        tokens = [self._read(row, position) for position in range(row.num_computed)]
        token_id = _unbanned(self._rule(tokens, row.sampling), len(tokens), row.sampling)
        row.last_sample = token_id
        wants = row.sampling.num_logprobs is not None
        logprobs = self._logprobs(token_id, row.sampling) if wants else None
        return RowResult(work.row, token_id, logprobs, scored)

    def _spoil(self, work: RowWork) -> None:
        """The row goes on with rubbish: plans in flight may still name it, and must not matter."""
        row = self._rows[work.row]
        for position in range(work.start, work.start + work.num_tokens):
            self._slots[self._slot(row, position)] = 0
        row.num_computed += work.num_tokens
        row.last_sample = 0

    def _slot(self, row: _Row, position: int) -> int:
        block_idx, offset = divmod(position, self.block_size)
        return row.blocks[block_idx] * self.block_size + offset

    def _read(self, row: _Row, position: int) -> int:
        token_id = self._slots[self._slot(row, position)]
        assert token_id is not None, f"position {position} is read before it was written"
        return token_id

    def _logprobs(self, token_id: int, sampling: RowSampling) -> TokenLogprobs:
        """Token t always has logprob -t/8 and rank t + 1, so the likeliest are 0, 1, 2..."""
        top = tuple((other, -other / 8) for other in range(sampling.num_logprobs or 0))
        return TokenLogprobs(token_id, -token_id / 8, token_id + 1, top)


def _want(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError(message)
