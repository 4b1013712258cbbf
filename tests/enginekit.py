# SPDX-License-Identifier: Apache-2.0
"""Engines over fakes, and the loops that drive them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from fakes import ByteTokenizer, EchoExecutor, ManualClock
from octavo.engine.chaos import Chaos
from octavo.engine.engine import Engine
from octavo.types.config import CacheConfig, EngineConfig, RuntimeConfig, SchedulerConfig
from octavo.types.outputs import RequestOutput
from octavo.types.ports import Clock
from octavo.types.sampling_params import SamplingParams

MAX_MODEL_LEN = 64
LIMITS = {"max_num_seqs": 16, "max_num_batched_tokens": 32, "max_model_len": MAX_MODEL_LEN}


def greedy(max_tokens: int | None = 8, **fields: object) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **fields)  # type: ignore[arg-type]


def make_engine(
    executor: EchoExecutor | None = None,
    *,
    clock: Clock | None = None,
    seeds: Callable[[], int] | None = None,
    cache: CacheConfig = CacheConfig(),  # noqa: B008 (frozen)
    runtime: RuntimeConfig = RuntimeConfig(),  # noqa: B008 (frozen)
    chaos: Chaos | None = None,
    window: int | None = None,
    **scheduler: object,
) -> Engine:
    return Engine(
        executor or EchoExecutor(),
        ByteTokenizer(),
        EngineConfig(
            cache=cache,
            scheduler=SchedulerConfig(**{**LIMITS, **scheduler}),  # type: ignore[arg-type]
            runtime=runtime,
        ),
        clock=clock or ManualClock(),
        seeds=seeds or count().__next__,
        chaos=chaos,
        window=window,
    )


def run_all(engine: Engine, steps_max: int = 10_000) -> list[RequestOutput]:
    """Step until idle, checking every account after every step; all outputs in order."""
    outputs = []
    for _ in range(steps_max):
        if not engine.has_unfinished():
            return outputs
        outputs += engine.step()
        engine.check()
    raise AssertionError(f"not idle after {steps_max} steps: {engine.stats()}")


def run_one(
    engine: Engine, prompt: str | list[int] = "hello", params: SamplingParams | None = None
) -> RequestOutput:
    """Run one request alone; its last output."""
    engine.add_request("one", prompt, params or greedy())
    (last,) = [output for output in run_all(engine) if output.finished]
    return last


def script(*token_ids: int, prompt_len: int) -> Callable[[Sequence[int], object], int]:
    """A rule that answers a prompt of that length with these tokens, the last for ever."""

    def rule(tokens: Sequence[int], sampling: object) -> int:
        return token_ids[min(len(tokens) - prompt_len, len(token_ids) - 1)]

    return rule
