# SPDX-License-Identifier: Apache-2.0
"""What sharing, block size and pipeline depth do to memory and speed, on the demo model.

python benchmarks/engine/claims.py            # tables for docs/claims.md
python benchmarks/engine/claims.py --smoke
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from octavo.assemble import Assembled, build_engine
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.config import CacheConfig, EngineConfig, RuntimeConfig, SchedulerConfig
from octavo.types.sampling_params import SamplingParams

CONFIG = EngineConfig(
    cache=CacheConfig(enable_prefix_caching=False, num_blocks=2048),
    runtime=RuntimeConfig(seed=0, pipeline_depth=1),
)


@contextmanager
def engine(model: str, config: EngineConfig) -> Iterator[Assembled]:
    assembled = build_engine(model, config)
    try:
        yield assembled
    finally:
        assembled.close()


def ids(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(length)]


def peak_blocks(assembled: Assembled) -> int:
    """Run what was added to its end; the most blocks in use after any step."""
    peak = 0
    while assembled.engine.has_unfinished():
        assembled.engine.step()
        peak = max(peak, assembled.engine.stats().num_used_blocks)
    return peak


def sharing(model: str, prompt_tokens: int, output_tokens: int) -> None:
    print(f"\n| {prompt_tokens} + {output_tokens} tokens, blocks of 32 | peak blocks | unshared |")
    print("|---|---:|---:|")
    alone = -(-(prompt_tokens + output_tokens) // 32)
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=output_tokens, ignore_eos=True)
    for n in (1, 2, 4, 8):
        with engine(model, CONFIG) as assembled:
            assembled.engine.add_request("r", ids(1, prompt_tokens), replace(params, n=n))
            print(f"| {n} samples | {peak_blocks(assembled)} | {n * alone} |")
    for width in (2, 4, 6):
        beams = BeamSearchParams(beam_width=width, max_tokens=output_tokens, ignore_eos=True)
        with engine(model, CONFIG) as assembled:
            assembled.engine.add_request("r", ids(1, prompt_tokens), beams)
            print(f"| beam width {width} | {peak_blocks(assembled)} | {width * alone} |")


def serve(assembled: Assembled, num_seqs: int, output_tokens: int) -> tuple[float, float, float]:
    """A mixed load: generated tokens/s, mean share of held slots in use, longest step in s."""
    run = assembled.engine
    rng = random.Random(2)
    for idx in range(num_seqs):
        params = SamplingParams(
            temperature=0.0, max_tokens=rng.randint(4, 2 * output_tokens), ignore_eos=True
        )
        run.add_request(f"r{idx}", ids(idx, rng.randint(4, 300)), params)
    used: list[float] = []
    longest_s = 0.0
    start = last = time.perf_counter()
    while run.has_unfinished():
        run.step()
        now = time.perf_counter()
        longest_s, last = max(longest_s, now - last), now
        usage = run.blocks.usage()
        held = usage.num_referenced * run.blocks.block_size
        if held:
            used.append(1 - usage.num_waste_slots / held)
    rate = run.stats().generation_tokens_total / (time.perf_counter() - start)
    return rate, sum(used) / len(used), longest_s


def block_sizes(model: str, num_seqs: int, output_tokens: int) -> None:
    print("\n| block size | slots in use | tokens/s |")
    print("|---:|---:|---:|")
    for block_size in (8, 16, 32, 64, 128, 256):
        cache = replace(CONFIG.cache, block_size=block_size, num_blocks=65536 // block_size)
        with engine(model, replace(CONFIG, cache=cache)) as assembled:
            rate, used, _ = serve(assembled, num_seqs, output_tokens)
        print(f"| {block_size} | {used:.1%} | {rate:.0f} |")


def depths(model: str, num_seqs: int, output_tokens: int) -> None:
    print("\n| pipeline depth | tokens/s | longest step, ms |")
    print("|---:|---:|---:|")
    for depth in (1, 2, 3, 4, 8):
        runtime = replace(CONFIG.runtime, pipeline_depth=depth)
        with engine(model, replace(CONFIG, runtime=runtime)) as assembled:
            rate, _, longest_s = serve(assembled, num_seqs, output_tokens)
        print(f"| {depth} | {rate:.0f} | {longest_s * 1000:.0f} |")


def reservation(model: str, num_seqs: int, output_tokens: int) -> None:
    """Growth on demand against reserving prompt and max_tokens, at the same memory."""
    print("\n| admission | tokens/s | slots in use |")
    print("|---|---:|---:|")
    for reserve in ("prompt", "expected", "full"):
        scheduler = SchedulerConfig(admission_reserve=reserve)
        cache = replace(CONFIG.cache, num_blocks=64)
        with engine(model, replace(CONFIG, cache=cache, scheduler=scheduler)) as assembled:
            rate, used, _ = serve(assembled, num_seqs, output_tokens)
        print(f"| {reserve} | {rate:.0f} | {used:.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="alias or .gguf path")
    parser.add_argument("--smoke", action="store_true", help="tiny workloads: does it run at all?")
    args = parser.parse_args()
    num_seqs, output_tokens = (3, 2) if args.smoke else (48, 64)
    sharing(args.model, 40 if args.smoke else 1000, 4 if args.smoke else 128)
    block_sizes(args.model, num_seqs, output_tokens)
    depths(args.model, num_seqs, output_tokens)
    reservation(args.model, num_seqs, output_tokens)


if __name__ == "__main__":
    main()
