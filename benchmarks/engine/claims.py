# SPDX-License-Identifier: Apache-2.0
"""What the articles on paged serving claim, measured on the demo model.

python benchmarks/engine/claims.py                 # every table of docs/claims.md
python benchmarks/engine/claims.py --only depths
python benchmarks/engine/claims.py --smoke
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from baseline import NUM_RESERVED, SMALL_WORKLOADS, WORKLOADS, Lengths, mixed, throughput
from capacity import arithmetic, occupancy
from kit import CONFIG, GREEDY, about, engine, ids, percentile, table
from simulated import StepCost, decode_s

from octavo import hub
from octavo.assemble import Assembled, start_engine
from octavo.formats.gguf import GgufFile
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.config import SchedulerConfig
from octavo.types.sampling_params import SamplingParams

DEPTHS = (1, 2, 3, 4, 6, 8, 10)
# Seconds of a step, a prompt token, a decode, a token of context: the demo model on two cores.
REFERENCE = StepCost(0.0025, 0.0005, 0.0009, 2e-6)
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)


def peak_blocks(assembled: Assembled) -> int:
    """Run what was added to its end; the most blocks in use after any step."""
    peak = 0
    while assembled.engine.has_unfinished():
        assembled.engine.step()
        peak = max(peak, assembled.engine.stats().num_used_blocks)
    return peak


def sharing(model: str, prompt_tokens: int, output_tokens: int) -> None:
    alone = -(-(prompt_tokens + output_tokens) // 32)
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=output_tokens, ignore_eos=True)

    def rows() -> Iterator[tuple[object, ...]]:
        for n in (1, 2, 4, 8):
            with engine(model) as assembled:
                assembled.engine.add_request("r", ids(1, prompt_tokens), replace(params, n=n))
                yield f"{n} sample{'s' * (n > 1)}", peak_blocks(assembled), n * alone
        for width in (2, 4, 6):
            beams = BeamSearchParams(beam_width=width, max_tokens=output_tokens, ignore_eos=True)
            with engine(model) as assembled:
                assembled.engine.add_request("r", ids(1, prompt_tokens), beams)
                yield f"beam width {width}", peak_blocks(assembled), width * alone

    title = f"{prompt_tokens} + {output_tokens} tokens in blocks of 32"
    table(title, ("answers", "peak blocks", "without sharing"), rows())


def serve(assembled: Assembled, num_seqs: int, output_tokens: int) -> tuple[float, float, float]:
    """A mixed load: generated tokens/s; means of the share of held slots in use, and of the length
    of a block table."""
    run = assembled.engine
    rng = random.Random(2)
    for idx in range(num_seqs):
        params = replace(GREEDY, max_tokens=rng.randint(4, 2 * output_tokens))
        run.add_request(f"r{idx}", ids(idx, rng.randint(4, 300)), params)
    used: list[float] = []
    lengths: list[float] = []
    start = time.perf_counter()
    while run.has_unfinished():
        run.step()
        usage = run.blocks.usage()
        held = usage.num_referenced * run.blocks.block_size
        if held:
            used.append(1 - usage.num_waste_slots / held)
            lengths.append(usage.num_logical / len(run.groups))
    rate = run.stats().generation_tokens_total / (time.perf_counter() - start)
    return rate, sum(used) / len(used), sum(lengths) / len(lengths)


def kv_rate(assembled: Assembled, context: int, num_tokens: int) -> float:
    """Bytes a second at which decodes read the cache: what a long context adds to a step; nan when
    it adds nothing that can be told from noise."""
    short, long = (decode_s(assembled, 8, length, num_tokens) for length in (8, context))
    num_bytes = 8 * (context - 8) * assembled.spec.kv_bytes_per_token()
    return num_bytes / (long - short) if long > short else float("nan")


def block_sizes(model: str, num_seqs: int, output_tokens: int, context: int) -> None:
    def rows() -> Iterator[tuple[object, ...]]:
        for block_size in BLOCK_SIZES:
            cache = replace(CONFIG.cache, block_size=block_size, num_blocks=65536 // block_size)
            with engine(model, replace(CONFIG, cache=cache)) as assembled:
                rate, used, length = serve(assembled, num_seqs, output_tokens)
                read = kv_rate(assembled, context, 5)
            yield block_size, f"{used:.1%}", f"{length:.1f}", f"{rate:.0f}", f"{read / 1e9:.1f}"

    columns = ("block size", "slots in use", "blocks in a table", "tokens/s", "KV read, GB/s")
    title = f"{num_seqs} requests of 4-300 + 4-{2 * output_tokens} tokens, all running at once"
    table(f"{title}; KV read at {context} tokens of context", columns, rows())


@contextmanager
def deep_engine(model: str, depth: int) -> Iterator[Assembled]:
    """An engine with so many plans in flight, which the configuration would refuse above 4."""
    resolved = hub.resolve(model)
    with GgufFile.open(resolved.path) as file:
        assembled = start_engine(file, CONFIG, model_name=resolved.name, depth=depth)
    try:
        yield assembled
    finally:
        assembled.close()


def depths(model: str, num_seqs: int, num_newcomers: int) -> None:
    """Sequences that decode all the time, and newcomers one after the other."""

    def rows() -> Iterator[tuple[object, ...]]:
        for depth in DEPTHS:
            with deep_engine(model, depth) as assembled:
                rate, waits = with_newcomers(assembled, num_seqs, num_newcomers)
            shown = (f"{1000 * percentile(waits, share):.0f}" for share in (0.5, 0.95))
            yield depth, f"{rate:.0f}", *shown

    columns = ("plans in flight", "tokens/s", "newcomer's first token, p50 ms", "p95 ms")
    table(f"{num_seqs} sequences that decode, and newcomers of 10 tokens", columns, rows())


def with_newcomers(
    assembled: Assembled, num_seqs: int, num_newcomers: int
) -> tuple[float, list[float]]:
    """Tokens/s, and the seconds from each newcomer's arrival to its first token."""
    run, waits = assembled.engine, []
    for idx in range(num_seqs):
        run.add_request(f"r{idx}", ids(idx, 16), replace(GREEDY, max_tokens=2000))
    while any(group.num_outputs < 2 for group in run.groups.values()):
        run.step()
    before, start = run.stats().generation_tokens_total, time.perf_counter()
    for idx in range(num_newcomers):
        arrival = time.perf_counter()
        run.add_request("new", ids(1000 + idx, 10), replace(GREEDY, max_tokens=1))
        while "new" in run.groups:
            run.step()
        waits.append(time.perf_counter() - arrival)
        for _ in range(idx % 4 + 4):  # the pipeline is full again, and not always at one point
            run.step()
    made = run.stats().generation_tokens_total - before
    return made / (time.perf_counter() - start), waits


def reservation(model: str, num_seqs: int, output_tokens: int) -> None:
    """Growth on demand against reserving prompt and max_tokens, at the same memory."""

    def rows() -> Iterator[tuple[object, ...]]:
        for reserve in ("prompt", "expected", "full"):
            scheduler = SchedulerConfig(admission_reserve=reserve)
            cache = replace(CONFIG.cache, num_blocks=64)
            with engine(model, replace(CONFIG, cache=cache, scheduler=scheduler)) as assembled:
                rate, used, _ = serve(assembled, num_seqs, output_tokens)
                num_preemptions = assembled.engine.stats().preemptions_total
            yield reserve, f"{rate:.0f}", f"{used:.1%}", num_preemptions

    columns = ("admission_reserve", "tokens/s", "slots in use", "preemptions")
    table(f"{num_seqs} mixed requests in 64 blocks of 32", columns, rows())


def simulated() -> None:
    """The baseline by a simulated clock, and how the ratio grows with the size of a batch."""
    throughput(REFERENCE, WORKLOADS, NUM_RESERVED)
    for num_reserved in (4, 32):
        throughput(REFERENCE, {"mixed, 5 % long": mixed(640)}, num_reserved)


def wide(model: str, workloads: dict[str, list[Lengths]], num_reserved: int) -> None:
    """The two ends of the baseline at a batch of twice the size."""
    throughput(model, workloads, num_reserved, ("static, reserved, padded", "continuous, paged"))


def main() -> None:
    tiny = {
        "sharing": lambda model: sharing(model, 40, 4),
        "blocks": lambda model: block_sizes(model, 3, 2, 64),
        "depths": lambda model: depths(model, 2, 2),
        "reserve": lambda model: reservation(model, 3, 2),
        "simulated": lambda model: throughput(REFERENCE, SMALL_WORKLOADS, 2),
        "capacity": lambda model: (arithmetic(), occupancy(40)),
        "baseline": lambda model: throughput(model, SMALL_WORKLOADS, 2),
        "wide": lambda model: wide(model, SMALL_WORKLOADS, 3),
    }
    full = {
        "sharing": lambda model: sharing(model, 1000, 128),
        "blocks": lambda model: block_sizes(model, 48, 64, 1500),
        "depths": lambda model: depths(model, 16, 40),
        "reserve": lambda model: reservation(model, 48, 64),
        "simulated": lambda model: simulated(),
        "capacity": lambda model: (arithmetic(), occupancy(200)),
        "baseline": lambda model: throughput(model, WORKLOADS, NUM_RESERVED),
        "wide": lambda model: wide(model, {"mixed, 5 % long": mixed(640)}, 32),
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="alias or .gguf path")
    parser.add_argument("--only", choices=full, help="one part")
    parser.add_argument("--smoke", action="store_true", help="tiny workloads: does it run at all?")
    args = parser.parse_args()
    print(about())
    for name, part in (tiny if args.smoke else full).items():
        if args.only in (None, name):
            part(args.model)


if __name__ == "__main__":
    main()
