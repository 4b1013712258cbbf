# SPDX-License-Identifier: Apache-2.0
"""Random histories with faults planted: answers must be those of a quiet, roomy engine.

Prompts share beginnings, requests have up to four samples, the pool is small, the swap pool too,
and the engine preempts, aborts, fails steps and fails swaps of its own accord. The worker checks
every plan, ``check`` every account after every step.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from enginekit import make_engine
from fakes import EchoExecutor, ManualClock, expected_tokens
from octavo.engine.chaos import Chaos
from octavo.engine.engine import Engine
from octavo.types.config import CacheConfig
from octavo.types.env import ChaosRates
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import OutputKind, SamplingParams
from octavo.types.step import RowSampling

RATES = ChaosRates(preempt=0.3, swapfail=0.2, abort=0.01, stepfail=0.01)


@dataclass
class History:
    engine: Engine
    rng: random.Random
    clock: ManualClock
    templates: list[list[int]]
    expected: dict[str, list[list[int]]] = field(default_factory=dict)
    received: dict[str, list[list[int]]] = field(default_factory=dict)
    reasons: dict[str, list[str]] = field(default_factory=dict)
    deltas: set[str] = field(default_factory=set)
    num_cached_tokens: int = 0

    def add(self) -> None:
        rng, request_id = self.rng, f"r{len(self.expected)}"
        template = rng.choice(self.templates)
        prompt = [*template[: rng.randint(1, len(template))], rng.randrange(256)]
        n, seed = rng.choice([1, 1, 2, 4]), rng.randrange(100)
        params = SamplingParams(
            n=n,
            temperature=1.0,
            seed=seed,
            max_tokens=rng.randint(1, 12),
            output_kind=rng.choice(list(OutputKind)),
            prompt_logprobs=rng.choice([None, None, 0]),
            queue_timeout_s=rng.choice([None, None, 40.0]),
        )
        limits = self.engine.admission.limits
        if n > limits.num_samples_max or limits.answer_room(len(prompt), n) < 1:
            return
        self.engine.add_request(request_id, prompt, params)
        num_tokens = min(params.max_tokens or 0, limits.answer_room(len(prompt), n))
        self.expected[request_id] = [
            expected_tokens(
                prompt, num_tokens, RowSampling(temperature=1.0, seed=seed, sample_idx=idx)
            )
            for idx in range(n)
        ]
        self.received[request_id] = [[] for _ in range(n)]
        self.reasons[request_id] = []
        if params.output_kind is OutputKind.DELTA:
            self.deltas.add(request_id)

    def step(self) -> None:
        self.clock.advance(1.0)
        for output in self.engine.step():
            self.take(output)
        self.engine.check()

    def take(self, output: RequestOutput) -> None:
        received = self.received[output.request_id]
        for sample in output.outputs:
            if output.request_id in self.deltas:
                received[sample.index] += sample.token_ids
            else:
                received[sample.index] = list(sample.token_ids)
        if output.finished:
            self.reasons[output.request_id] = [str(s.finish_reason) for s in output.outputs]
            self.num_cached_tokens += output.num_cached_tokens
            total = sum(len(tokens) for tokens in received)
            assert output.num_output_tokens == total


def play(seed: int, rates: ChaosRates = RATES, num_events: int = 200) -> History:
    rng = random.Random(seed)
    executor = EchoExecutor(
        num_blocks=rng.randint(6, 20),
        block_size=8,
        num_rows=rng.randint(4, 9),
        num_swap_blocks=rng.choice([0, 4, 30]),
        depth=rng.randint(1, 3),
    )
    clock = ManualClock()
    engine = make_engine(
        executor,
        max_num_seqs=rng.randint(4, 8),
        max_num_batched_tokens=rng.choice([3, 8, 40]),
        max_model_len=1000,
        clock=clock,
        chaos=Chaos(rates, random.Random(seed)),
        cache=CacheConfig(enable_prefix_caching=rng.random() < 0.7),
        preemption_mode=rng.choice(["swap", "recompute", "auto", "legacy"]),
    )
    templates = [[rng.randrange(256) for _ in range(30)] for _ in range(2)]
    history = History(engine, rng, clock, templates)
    for _ in range(num_events):
        rng.choices([history.add, history.step], [1, 5])[0]()
    for _ in range(20_000):
        if not engine.has_unfinished():
            return history
        history.step()
    raise AssertionError(f"no end: {engine.stats()}")


def assert_right(history: History) -> None:
    for request_id, expected in history.expected.items():
        reasons = history.reasons[request_id]
        assert reasons, f"{request_id} has no end"
        for received, wanted in zip(history.received[request_id], expected, strict=True):
            assert received == wanted[: len(received)]
            if set(reasons) <= {"length"}:
                assert received == wanted
    stats = history.engine.stats()
    assert stats.num_free_blocks + stats.num_cached_blocks == stats.num_blocks
    assert stats.num_running == stats.num_waiting == stats.num_swapped == 0
    assert stats.num_limbo_blocks == stats.num_shared_blocks == 0
    assert len(history.engine._outputs) == len(history.engine._lifecycles) == 0


@pytest.mark.parametrize("seed", range(60))
def test_faults_change_no_answer(seed: int) -> None:
    assert_right(play(seed))


def test_the_histories_have_everything_in_them() -> None:
    histories = [play(seed) for seed in range(25)]
    stats = [history.engine.stats() for history in histories]
    assert sum(s.preemptions_by_mode["swap"] for s in stats) > 100
    assert sum(s.preemptions_by_mode["recompute"] for s in stats) > 100
    assert sum(s.swap_in_blocks_total for s in stats) > 100
    assert sum(s.copied_blocks_total for s in stats) > 100
    assert sum(s.failed_steps_total for s in stats) > 10
    assert sum(h.num_cached_tokens for h in histories) > 100
    reasons = [reason for h in histories for ends in h.reasons.values() for reason in ends]
    for reason in ("length", "abort", "error", "timeout"):
        assert reason in reasons
