# SPDX-License-Identifier: Apache-2.0
"""Running a real model in tests: engines with chosen settings, and requests to completion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from octavo.assemble import Assembled, build_engine
from octavo.types.config import CacheConfig, EngineConfig, RuntimeConfig, SchedulerConfig
from octavo.types.outputs import RequestOutput
from octavo.types.sampling_params import OutputKind, SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True, logprobs=2)


def settings(
    *,
    threads: int = 2,
    step_tokens: int = 512,
    block_size: int = 32,
    num_blocks: int | None = None,
    num_seqs: int = 64,
    isa: str | None = None,
    **others: Any,
) -> EngineConfig:
    """``others`` are fields of any of the three configurations, by name."""
    cache = CacheConfig(block_size=block_size, num_blocks=num_blocks)
    scheduler = SchedulerConfig(max_num_seqs=num_seqs, max_num_batched_tokens=step_tokens)
    runtime = RuntimeConfig(threads=threads, seed=1, isa=isa)
    parts = {}
    for name, part in (("cache", cache), ("scheduler", scheduler), ("runtime", runtime)):
        own = [field.name for field in fields(part) if field.name in others]
        parts[name] = replace(part, **{field: others.pop(field) for field in own})
    assert not others, f"no such setting: {others}"
    return EngineConfig(**parts)  # type: ignore[arg-type]


@contextmanager
def open_engine(path: Path, **chosen: object) -> Iterator[Assembled]:
    assembled = build_engine(path, settings(**chosen))  # type: ignore[arg-type]
    try:
        yield assembled
    finally:
        assembled.close()


def finish(
    assembled: Assembled, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
) -> list[RequestOutput]:
    """Run all requests together to their end; outputs in the order of the prompts."""
    engine = assembled.engine
    for idx, (prompt, param) in enumerate(zip(prompts, params, strict=True)):
        engine.add_request(str(idx), list(prompt), param.clone(output_kind=OutputKind.FINAL_ONLY))
    done: dict[str, RequestOutput] = {}
    while engine.has_unfinished():
        done.update((output.request_id, output) for output in engine.step())
    stats = engine.stats()
    assert stats.num_used_blocks == 0, f"blocks leaked: {stats}"
    return [done[str(idx)] for idx in range(len(prompts))]


def evidence(output: RequestOutput) -> list[tuple[object, ...]]:
    """All that must be equal to the last bit: ids, logprobs and alternatives of every token."""
    (sample,) = output.outputs
    assert sample.logprobs is not None
    return [
        (token, sorted((key, value.logprob) for key, value in entry.items()))
        for token, entry in zip(sample.token_ids, sample.logprobs, strict=True)
    ]
