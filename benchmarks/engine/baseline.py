# SPDX-License-Identifier: Apache-2.0
"""Paged blocks and continuous batching against the baseline that octavo ships: static batches in a
cache that sets the longest length aside for each sequence.

Run by ``claims.py --only baseline``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kit import CONFIG, GREEDY, engine, ids, table
from simulated import StepCost, simulated_engine

from octavo.engine.engine import Engine
from octavo.types.config import CacheConfig, EngineConfig, SchedulerConfig

MODEL_LEN = 2048  # what is set aside for a sequence
NUM_RESERVED = 16  # sequences that the pool holds at that length
BLOCK_SIZE = 16

Lengths = tuple[int, int]  # prompt, answer


def mixed(count: int) -> list[Lengths]:
    """Short answers, and one in twenty of some 500 tokens."""
    rng = random.Random(1)
    return [
        (rng.randint(8, 64), rng.randint(400, 600) if rng.random() < 0.05 else rng.randint(4, 16))
        for _ in range(count)
    ]


def geometric(count: int) -> list[Lengths]:
    """Answers that may end at any token: 64 on average, half of them below 45."""
    rng = random.Random(2)
    lengths = [1 + int(rng.expovariate(1 / 64)) for _ in range(count)]
    return [(rng.randint(16, 128), min(1500, length)) for length in lengths]


def alike(count: int) -> list[Lengths]:
    """What static batches are good at: all of one length."""
    return [(64, 64)] * count


WORKLOADS = {
    "mixed, 5 % long": mixed(160),
    "geometric": geometric(128),
    "all alike": alike(128),
}
SMALL_WORKLOADS = {"mixed": [(8, 4), (4, 24), (6, 2)]}

STATIC = SchedulerConfig(
    batching="static", admission_reserve="max_model_len", max_model_len=MODEL_LEN
)
ENGINES = {
    "static, reserved, padded": STATIC,
    "static, reserved": STATIC,
    "continuous, reserved": replace(STATIC, batching="continuous"),
    "continuous, paged": SchedulerConfig(max_model_len=MODEL_LEN),
}


@dataclass(frozen=True)
class Run:
    seconds: float
    num_generated: int  # asked for; padding is not among them
    use: float  # tokens held / slots set aside, mean over steps
    num_running: float  # mean over steps
    padding: float  # share of all computed tokens


def config(scheduler: SchedulerConfig, num_reserved: int = NUM_RESERVED) -> EngineConfig:
    """The same memory for every engine."""
    num_blocks = num_reserved * MODEL_LEN // BLOCK_SIZE
    cache = CacheConfig(
        block_size=BLOCK_SIZE, num_blocks=num_blocks, enable_prefix_caching=False, watermark=0.0
    )
    return replace(CONFIG, cache=cache, scheduler=scheduler)


def padded(lengths: list[Lengths], size: int) -> list[Lengths]:
    """What an engine with padding computes for batches of ``size``: the longest prompt and the
    longest answer of each, for all of it."""
    batches = [lengths[first : first + size] for first in range(0, len(lengths), size)]
    return [
        (max(one[0] for one in batch), max(one[1] for one in batch))
        for batch in batches
        for _ in batch
    ]


def run(model: str | StepCost, name: str, asked: list[Lengths], num_reserved: int) -> Run:
    """Serve requests that are all there from the start, to the end of the last one."""
    is_padded = name.endswith("padded")
    lengths = padded(asked, num_reserved) if is_padded else asked
    chosen = config(ENGINES[name], num_reserved)
    if isinstance(model, StepCost):
        made, _ = simulated_engine(chosen, model, num_slots=num_reserved * MODEL_LEN)
        return serve(made, asked, lengths)
    with engine(model, chosen) as assembled:
        warm_up(assembled.engine)
        return serve(assembled.engine, asked, lengths)


def warm_up(one: Engine) -> None:
    one.add_request("warm", ids(0, 512), replace(GREEDY, max_tokens=4))
    while one.has_unfinished():
        one.step()


def serve(one: Engine, asked: list[Lengths], lengths: list[Lengths]) -> Run:
    for idx, (num_prompt, num_outputs) in enumerate(lengths):
        one.add_request(str(idx), ids(idx, num_prompt), replace(GREEDY, max_tokens=num_outputs))
    used: list[float] = []
    running: list[int] = []
    start = one.clock()
    while one.has_unfinished():
        one.step()
        if set_aside := num_set_aside(one):
            used.append(num_held(one) / set_aside)
            running.append(len(one.groups) - one.stats().num_waiting)
    seconds = one.clock() - start
    computed, wanted = (sum(map(sum, both)) for both in (lengths, asked))
    return Run(
        seconds,
        sum(num_outputs for _, num_outputs in asked),
        sum(used) / len(used),
        sum(running) / len(running),
        1 - wanted / computed,
    )


def num_set_aside(one: Engine) -> int:
    """Slots that running sequences have, or that are kept for them; a member of a static batch that
    has ended keeps its own until all have, which is not counted here."""
    stats = one.stats()
    is_reserved = one.config.scheduler.admission_reserve == "max_model_len"
    num_promised = stats.num_promised_blocks if is_reserved else 0
    return (stats.num_used_blocks + num_promised) * stats.block_size


def num_held(one: Engine) -> int:
    """Tokens in the cache."""
    return sum(
        seq.num_computed
        for group in one.groups.values()
        for seq in group.sequences
        if seq.row is not None
    )


def throughput(
    model: str | StepCost,
    workloads: dict[str, list[Lengths]],
    num_reserved: int,
    engines: Iterable[str] = ENGINES,
) -> None:
    """``model``: a name, or costs by which a simulated clock goes. The first engine is the base."""
    columns = ("workload", "engine", "tokens/s", "ratio", "running", "slots in use", "padding")

    def rows() -> Iterator[tuple[object, ...]]:
        for workload, asked in workloads.items():
            base = 0.0
            for name in engines:
                made = run(model, name, asked, num_reserved)
                rate = made.num_generated / made.seconds
                base = base or rate
                yield (
                    workload,
                    name,
                    f"{rate:.0f}",
                    f"{rate / base:.2f}",
                    f"{made.num_running:.1f}",
                    f"{made.use:.1%}",
                    f"{made.padding:.1%}",
                )

    sizes = " / ".join(str(len(asked)) for asked in workloads.values())
    table(
        f"{sizes} requests, all there from the start; a pool of {num_reserved} x {MODEL_LEN} slots;"
        " of the answers' tokens those are counted that were asked for",
        columns,
        rows(),
    )
