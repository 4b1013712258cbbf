# SPDX-License-Identifier: Apache-2.0
"""The real engine, scheduler and block manager over a worker that only says how long it took.

So ten minutes of traffic take seconds, and two settings differ by what the scheduler did and not
by what else the machine had to do. The four costs are measured on the real model first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from kit import GREEDY, engine, ids

from octavo.assemble import Assembled
from octavo.engine.engine import Engine
from octavo.executor.inline import InlineExecutor
from octavo.types.config import EngineConfig
from octavo.types.step import RowResult, StepPlan, StepResult

TOKEN_ID = 7


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step: a fixed part, and for each prompt token, decode and token of context that
    a row attends to."""

    fixed_s: float
    prefill_s: float
    decode_s: float
    context_s: float

    def seconds(self, plan: StepPlan) -> float:
        total = self.fixed_s
        for work in plan.work:
            total += self.context_s * (work.start + work.num_tokens)
            total += self.decode_s if work.num_tokens == 1 else self.prefill_s * work.num_tokens
        return total


class SimulatedClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait_until(self, moment: float) -> None:
        self.now = max(self.now, moment)


class RealClock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self) -> float:
        return time.monotonic() - self._start

    def wait_until(self, moment: float) -> None:
        time.sleep(max(0.0, moment - self()))


class SimulatedWorker:
    """Answers every sample with the same token and moves the clock on by what the step costs."""

    def __init__(
        self, cost: StepCost, clock: SimulatedClock, *, num_blocks: int, block_size: int
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_swap_blocks = 0
        self.num_rows = 4096
        self._cost = cost
        self._clock = clock

    def execute(self, plan: StepPlan) -> StepResult:
        seconds = self._cost.seconds(plan)
        self._clock.now += seconds
        rows = tuple(RowResult(work.row, TOKEN_ID if work.samples else None) for work in plan.work)
        return StepResult(plan.step_id, rows, compute_s=seconds)

    def close(self) -> None:
        pass


class SilentTokenizer:
    """For prompts that are ids and answers that nobody reads."""

    vocab_size = 65536
    bos_token_id = None
    eos_token_id = None
    stop_token_ids: frozenset[int] = frozenset()
    chat_template = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [TOKEN_ID for _ in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return ""

    def token_bytes(self, token_id: int) -> bytes:
        return b""

    def is_special(self, token_id: int) -> bool:
        return False

    def render_chat(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> str:
        return ""


def simulated_engine(
    config: EngineConfig, cost: StepCost, *, num_slots: int
) -> tuple[Engine, SimulatedClock]:
    """An engine whose KV pool has ``num_slots`` slots, and its clock, at 0."""
    clock = SimulatedClock()
    block_size = config.cache.block_size
    worker = SimulatedWorker(cost, clock, num_blocks=num_slots // block_size, block_size=block_size)
    executor = InlineExecutor(worker)
    made = Engine(executor, SilentTokenizer(), config, clock=clock, seeds=count().__next__)
    return made, clock


def measure_cost(model: str, *, context: int = 1500, num_tokens: int = 24) -> StepCost:
    """The four costs, from decodes of 1 and of 32 rows, a prompt, and decodes over much context."""
    with engine(model) as assembled:
        decode_s(assembled, 2, 8, 4)  # memory is committed, and the cores are awake
        one = decode_s(assembled, 1, 8, num_tokens)
        many = decode_s(assembled, 32, 8, num_tokens)
        deep = decode_s(assembled, 8, context, num_tokens)
        prefill = _prefill_s(assembled, 512)
    each = max(0.0, many - one) / 31
    fixed = max(0.0, one - each)
    beyond = max(0.0, deep - fixed - 8 * each)
    return StepCost(fixed, max(0.0, prefill - fixed) / 512, each, beyond / (8 * context))


def _prefill_s(assembled: Assembled, length: int) -> float:
    """The fastest of three: the others were disturbed."""
    took = []
    for seed in range(3):
        assembled.engine.add_request("p", ids(seed, length), replace(GREEDY, max_tokens=1))
        took.append(_step_s(assembled))
        _finish(assembled)
    return min(took)


def decode_s(assembled: Assembled, num_rows: int, context: int, num_tokens: int) -> float:
    """The fastest step in which ``num_rows`` sequences decode and nobody else does anything."""
    for row in range(num_rows):
        params = replace(GREEDY, max_tokens=4096)
        assembled.engine.add_request(str(row), ids(row, context), params)
    while any(group.num_outputs < 1 for group in assembled.engine.groups.values()):
        assembled.engine.step()
    took = min(_step_s(assembled) for _ in range(num_tokens))
    _finish(assembled)
    return took


def _step_s(assembled: Assembled) -> float:
    start = time.perf_counter()
    assembled.engine.step()
    return time.perf_counter() - start


def _finish(assembled: Assembled) -> None:
    for request_id in list(assembled.engine.groups):
        assembled.engine.abort(request_id)
    while assembled.engine.has_unfinished():
        assembled.engine.step()
