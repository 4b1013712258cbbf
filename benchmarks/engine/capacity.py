# SPDX-License-Identifier: Apache-2.0
"""How many sequences one KV pool holds, and how much of it is used: arithmetic, and the scheduler
on lengths of a real trace. No model runs.

Run by ``claims.py --only capacity``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from baseline import ENGINES, num_held, num_set_aside
from kit import CONFIG, GREEDY, ids, table
from simulated import StepCost, simulated_engine
from traffic import azure

from octavo.types.config import CacheConfig, EngineConfig, SchedulerConfig

POOL_BYTES = 12 * 2**30
TOKEN_BYTES = 819_200  # a model of 13 billion parameters: 2 x 40 layers x 5,120 values of 2 bytes
MODEL_LEN = 2048
COST = StepCost(0.01, 0.0001, 0.0001, 0.0)  # only the order of events matters


def arithmetic() -> None:
    num_slots = POOL_BYTES // TOKEN_BYTES
    lengths = [one.prompt_len + one.output_len for one in azure()]
    mean = sum(lengths) / len(lengths)
    print(
        f"\nA pool of 12 GiB at {TOKEN_BYTES:,} bytes a token has {num_slots:,} slots: with"
        f" {MODEL_LEN:,} set aside for each, {num_slots // MODEL_LEN} sequences at once."
        f" At the trace's mean length of {mean:,.0f} it holds {num_slots / mean:.1f} that have"
        " ended, and more that have not."
    )
    longest, shortest = 4096, 10
    share = 1 - shortest / longest
    both = (longest - shortest) / (2 * longest)
    print(
        f"\nPrompts of {shortest} and {longest:,} tokens in a padded batch: {share:.2%} of what is"
        f" computed for the short one is padding, {both:.1%} of the batch; ragged, none."
    )


def occupancy(num_requests: int) -> None:
    columns = ("cache", "set aside for each", "running, mean", "slots in use", "seconds")

    def rows() -> Iterator[tuple[object, ...]]:
        for name, block_size, model_len in (
            ("static, reserved", 16, 2048),
            ("continuous, reserved", 16, 2048),
            ("continuous, reserved", 16, 4096),
            ("continuous, reserved", 16, 8192),
            ("continuous, paged", 16, 2048),
            ("continuous, paged", 32, 8192),
        ):
            scheduler = replace(ENGINES[name], max_model_len=model_len)
            kept = f"{model_len:,}" if "reserved" in name else "blocks in use"
            running, use, seconds = fill(scheduler, block_size, num_requests)
            label = f"{name}, blocks of {block_size}" if "paged" in name else name
            yield label, kept, f"{running:.1f}", f"{use:.1%}", f"{seconds:.0f}"

    table(
        f"The trace's first {num_requests} requests, all there from the start, in 12 GiB at"
        f" {TOKEN_BYTES:,} bytes a token; mean over the steps in which some wait",
        columns,
        rows(),
    )


def fill(
    scheduler: SchedulerConfig, block_size: int, num_requests: int
) -> tuple[float, float, float]:
    """Mean of running sequences and of slots in use, and simulated seconds."""
    config: EngineConfig = replace(
        CONFIG,
        cache=CacheConfig(block_size=block_size, enable_prefix_caching=False, watermark=0.0),
        scheduler=scheduler,
    )
    engine, clock = simulated_engine(config, COST, num_slots=POOL_BYTES // TOKEN_BYTES)
    for idx, one in enumerate(azure()[:num_requests]):
        # The few that are longer than a reservation are cut to it, in every row alike.
        prompt_len = min(one.prompt_len, MODEL_LEN - 256)
        output_len = min(one.output_len, MODEL_LEN - prompt_len)
        params = replace(GREEDY, max_tokens=output_len)
        engine.add_request(str(idx), ids(idx, prompt_len), params)
    used: list[float] = []
    running: list[int] = []
    while engine.has_unfinished():
        engine.step()
        if engine.stats().num_waiting and (set_aside := num_set_aside(engine)):
            used.append(num_held(engine) / set_aside)
            running.append(engine.stats().num_running)
    engine.close()
    return sum(running) / len(running), sum(used) / len(used), clock()
