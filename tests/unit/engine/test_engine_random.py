# SPDX-License-Identifier: Apache-2.0
"""Random histories of an engine in a pool that is far too small, over a worker that checks all.

What is asserted after every step: no plan broke the contract (the worker raises), every account
balances, and at the end every request has exactly the tokens that it would have had alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from enginekit import make_engine
from fakes import EchoExecutor, PlanError, expected_tokens
from octavo.cache.block_pool import BlockPool
from octavo.engine.engine import Engine
from octavo.types.errors import CorruptState
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import OutputKind, SamplingParams

# Under each the next token depends on all that came before it in another way.
SETTINGS: list[dict[str, object]] = [
    {"presence_penalty": 0.5, "frequency_penalty": -0.25},
    {"repetition_penalty": 1.5, "logit_bias": {"7": 3.0}},
    {"bad_words": ["a", "bc", "   "], "allowed_token_ids": [*range(90, 200)]},
]


@dataclass
class History:
    rng: random.Random
    executor: EchoExecutor
    engine: Engine
    expected: dict[str, list[int]] = field(default_factory=dict)
    received: dict[str, list[int]] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    num_steps: int = 0

    def add(self) -> None:
        rng, request_id = self.rng, f"r{len(self.expected)}"
        num_slots = self.engine.admission.limits.num_tokens_max
        prompt = [rng.randrange(256) for _ in range(rng.randint(1, num_slots - 1))]
        seed, temperature = rng.randrange(100), rng.choice([0.0, 1.0])
        params = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=rng.choice([None, rng.randint(1, 12)]),
            output_kind=rng.choice([OutputKind.DELTA, OutputKind.FINAL_ONLY]),
            prompt_logprobs=rng.choice([None, 0]),
            **rng.choice([{}, {}, *SETTINGS]),
        )
        self.engine.add_request(request_id, prompt, params)
        room = num_slots - len(prompt)
        num_tokens = room if params.max_tokens is None else min(room, params.max_tokens)
        (seq,) = self.engine.groups[request_id].sequences
        sampling = seq.sampling
        assert (sampling.temperature, sampling.seed) == (temperature, seed)
        self.expected[request_id] = expected_tokens(prompt, num_tokens, sampling)
        self.received[request_id] = []

    def abort(self) -> None:
        self.engine.abort(self.rng.choice([*self.expected, "stranger"]))

    def step(self) -> None:
        meddle = self.rng.choice([None, None, self.abort, self.add])
        for output in self.engine.step(before_commit=meddle):
            self.take(output)
        self.engine.check()
        self.num_steps += 1

    def take(self, output: RequestOutput) -> None:
        (sample,) = output.outputs
        assert output.request_id not in self.ended, "an output after the last one"
        self.received[output.request_id] += sample.token_ids
        assert output.num_output_tokens >= len(self.received[output.request_id])
        if output.finished:
            assert output.num_output_tokens == len(self.received[output.request_id])
            self.ended[output.request_id] = str(sample.finish_reason)


def play(seed: int, num_events: int = 250, fail_rate: float = 0.0) -> History:
    rng = random.Random(seed)
    executor = EchoExecutor(
        num_blocks=rng.randint(3, 12),
        block_size=8,
        num_rows=rng.randint(1, 8),
        depth=rng.randint(1, 3),
    )
    engine = make_engine(
        executor,
        max_num_seqs=rng.randint(1, 8),
        max_num_batched_tokens=rng.choice([1, 5, 8, 40]),
        max_model_len=rng.choice([24, 1000]),
        admission_reserve=("expected", "prompt")[seed % 2],
    )
    executor.fail_steps |= {i for i in range(1, 5000) if rng.random() < fail_rate}
    history = History(rng, executor, engine)
    for _ in range(num_events):
        event = rng.choices([history.add, history.abort, history.step], [2, 1, 12])[0]
        event()
        engine.check()
    while engine.has_unfinished():
        for output in engine.step():
            history.take(output)
        engine.check()
        history.num_steps += 1
        assert history.num_steps < 20_000, "no end"
    return history


def assert_right(history: History) -> None:
    assert history.ended.keys() == history.expected.keys()
    for request_id, reason in history.ended.items():
        expected, received = history.expected[request_id], history.received[request_id]
        if reason in ("abort", "error"):
            assert received == expected[: len(received)]
        else:
            assert (reason, received) == ("length", expected)
    stats = history.engine.stats()
    assert stats.num_used_blocks == 0
    assert stats.num_running == stats.num_waiting == stats.num_limbo_blocks == 0
    assert len(history.engine._outputs) == 0


@pytest.mark.parametrize("seed", range(40))
def test_every_answer_is_the_one_it_would_have_been_alone(seed: int) -> None:
    assert_right(play(seed))


@pytest.mark.parametrize("seed", range(100, 115))
def test_and_so_it_is_when_steps_fail(seed: int) -> None:
    history = play(seed, fail_rate=0.05)
    assert_right(history)
    assert history.engine.stats().failed_steps_total > 0


def test_the_histories_do_preempt_and_do_finish() -> None:
    histories = [play(seed) for seed in range(20)]
    assert sum(h.engine.stats().preemptions_total for h in histories) > 100
    assert sum(reason == "length" for h in histories for reason in h.ended.values()) > 100
    assert sum(reason == "abort" for h in histories for reason in h.ended.values()) > 100


def _release_without_fence(pool: BlockPool, block_ids: list[int]) -> None:
    for block_id in reversed(block_ids):
        pool._refs[block_id] -= 1
        pool._free.append(block_id)


def _release_nothing(pool: BlockPool, block_ids: list[int]) -> None:
    pass


def _release_all_but_one(pool: BlockPool, block_ids: list[int]) -> None:
    _release_without_fence(pool, block_ids[1:])


@pytest.mark.parametrize(
    "planted", [_release_without_fence, _release_nothing, _release_all_but_one]
)
def test_a_planted_error_is_seen(planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockPool, "release", planted)

    def play_all() -> None:
        for seed in range(40):
            assert_right(play(seed))

    with pytest.raises((PlanError, CorruptState, AssertionError)):
        play_all()
