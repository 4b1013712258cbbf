# SPDX-License-Identifier: Apache-2.0
"""Who waits how long: short prompts beside a long one, and policies on a scaled trace.

python benchmarks/engine/fairness.py                 # tables for docs/scheduling.md
python benchmarks/engine/fairness.py --only together
python benchmarks/engine/fairness.py --smoke
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from kit import CONFIG, about, engine, percentile, table
from simulated import RealClock, StepCost, measure_cost, simulated_engine
from traffic import Arrival, Report, at_load, azure, for_users, replay

from octavo.assemble import Assembled
from octavo.types.config import CacheConfig, EngineConfig, RuntimeConfig, SchedulerConfig

SHORT_LEN, NUM_LATE = 10, 16
NUM_SEQS = 16  # at once: two cores are busy with 8, and more only make all of them slow
TTFT_TARGET_S, ITL_TARGET_S = 1.0, 0.1
LENGTH_DIVISOR = 8  # mean lengths 139 and 34: a few seconds of the demo model at most
HEAVY, LIGHT = "heavy", "light"


def together(model: str, long_len: int, repeats: int) -> None:
    """Time to first token of short prompts alone, and beside a long one that is first in line."""
    config = EngineConfig(
        cache=CacheConfig(enable_prefix_caching=False), runtime=RuntimeConfig(seed=0)
    )
    columns = ("short prompts", "alone, ms", "with the long one, ms", "ratio", "long one, s")

    def rows(assembled: Assembled) -> Iterator[tuple[object, ...]]:
        for num_short in (1, 4, 16):
            alone, beside, long_s = [], [], []
            for repeat in range(repeats + 1):
                lone = _short_and_long(assembled, num_short, 0)
                both = _short_and_long(assembled, num_short, long_len)
                if repeat > 0:  # before that, memory is committed
                    alone.append(lone[0])
                    beside.append(both[0])
                    long_s.append(both[1])
            a, b = (1000 * percentile(one, 0.5) for one in (alone, beside))
            last = percentile(long_s, 0.5)
            yield num_short, f"{a:.1f}", f"{b:.1f}", f"{b / a:.2f}", f"{last:.2f}"

    with engine(model, config) as assembled:
        title = f"One prompt of {long_len} tokens and some of {SHORT_LEN}, all at once: the last"
        table(
            f"{title} first token of the short ones, median of {repeats}", columns, rows(assembled)
        )


def _short_and_long(assembled: Assembled, num_short: int, long_len: int) -> tuple[float, float]:
    """Seconds to the last first token of the short prompts, and to the long one's."""
    lengths = ([long_len] if long_len else []) + [SHORT_LEN] * num_short
    arrivals = [Arrival(0.0, length, 4) for length in lengths]
    times = [one.ttft_s for one in replay(assembled.engine, RealClock(), arrivals).served]
    return max(times[-num_short:]), times[0]


LATE: dict[str, dict[str, object]] = {
    "defaults": {},
    "max_num_batched_tokens 192": {"max_num_batched_tokens": 192},
    "slo_itl_ms 50": {"slo_itl_ms": 50.0},
}


def late(model: str, long_len: int, repeats: int) -> None:
    """Short prompts that come when the long one's first step has begun: they wait for its end."""
    columns = ("setting", "alone, ms", "behind the long one, ms", "long one, s")

    def rows() -> Iterator[tuple[object, ...]]:
        for name, settings in LATE.items():
            with engine(model, scheduling(settings, 256)) as assembled:
                _short_and_long(assembled, NUM_LATE, long_len)
                alone = [_short_and_late(assembled, 0, 1) for _ in range(repeats)]
                beside = [_short_and_late(assembled, long_len, 1) for _ in range(repeats)]
            a, b = (1000 * percentile([one[0] for one in both], 0.5) for both in (alone, beside))
            yield name, f"{a:.0f}", f"{b:.0f}", f"{percentile([x for _, x in beside], 0.5):.2f}"

    title = f"{NUM_LATE} prompts of {SHORT_LEN} tokens, 20 ms after one of {long_len}"
    table(f"{title}: the last first token, median of {repeats}", columns, rows())


def _short_and_late(assembled: Assembled, long_len: int, num_tokens: int) -> tuple[float, float]:
    """Seconds to the last first token of the short prompts, and to the long one's."""
    first = [Arrival(0.0, long_len, num_tokens)] if long_len else []
    arrivals = [*first, *(Arrival(0.02, SHORT_LEN, num_tokens) for _ in range(NUM_LATE))]
    times = [one.ttft_s for one in replay(assembled.engine, RealClock(), arrivals).served]
    return max(times[-NUM_LATE:]), times[0]


SETTINGS: dict[str, dict[str, object]] = {
    "defaults": {},
    "delay factor 2": {"scheduler_delay_factor": 2.0},
    "delay factor auto": {"scheduler_delay_factor": "auto"},
    "slo_itl_ms 50": {"slo_itl_ms": 50.0},
    "slo_ttft_ms 500": {"slo_ttft_ms": 500.0},
    "slo_itl_ms 50, delay auto": {"slo_itl_ms": 50.0, "scheduler_delay_factor": "auto"},
    "sjf, ageing off": {"scheduling_policy": "sjf", "max_queue_wait_s": 0},
    "sjf, ageing 5 s": {"scheduling_policy": "sjf", "max_queue_wait_s": 5.0},
    "hrrn, ageing off": {"scheduling_policy": "hrrn", "max_queue_wait_s": 0},
    "fair, ageing off": {"scheduling_policy": "fair", "max_queue_wait_s": 0},
    "fair, ageing 5 s": {"scheduling_policy": "fair"},
    "fcfs, ageing off": {"max_queue_wait_s": 0},
}
COLUMNS = (
    "setting",
    "TTFT p50 / p95 / p99, ms",
    "light user's p95",
    "ITL p50 / p95 / p99, ms",
    "goodput, req/s",
    "service gap, tokens",
)


def scheduling(settings: dict[str, object], num_seqs: int = NUM_SEQS) -> EngineConfig:
    scheduler = SchedulerConfig(
        max_num_seqs=num_seqs,
        max_model_len=4096,
        **settings,  # type: ignore[arg-type]
    )
    return replace(CONFIG, scheduler=scheduler, cache=replace(CONFIG.cache, num_blocks=2048))


def row(name: str, report: Report) -> tuple[object, ...]:
    shares = (0.5, 0.95, 0.99)
    return (
        name,
        " / ".join(f"{report.ttft_ms(share):.0f}" for share in shares),
        f"{report.ttft_ms(0.95, LIGHT):.0f}",
        " / ".join(f"{report.itl_ms(share):.0f}" for share in shares),
        f"{report.goodput(TTFT_TARGET_S, ITL_TARGET_S):.2f}",
        f"{report.service_gap:.0f}",
    )


def run_simulated(name: str, cost: StepCost, arrivals: list[Arrival]) -> Report:
    config = scheduling(SETTINGS[name])
    made, clock = simulated_engine(config, cost, num_slots=2048 * 32)
    report = replay(made, clock, arrivals)
    made.close()
    return report


def capacity(cost: StepCost, num_requests: int) -> float:
    """Requests a second when all are there from the start: what is called a load of 100 %."""
    rush = [replace(one, time_s=0.0) for one in azure(LENGTH_DIVISOR)[:num_requests]]
    return num_requests / run_simulated("defaults", cost, rush).duration_s


def simulated(cost: StepCost, load: float, num_requests: int) -> None:
    arrivals = _arrivals(cost, load, num_requests)
    rows = (row(name, run_simulated(name, cost, arrivals)) for name in SETTINGS)
    table(f"Simulated clock, {_title(arrivals, load)}", COLUMNS, rows)


def real(model: str, cost: StepCost, load: float, num_requests: int, names: list[str]) -> None:
    arrivals = _arrivals(cost, load, num_requests)

    def rows() -> Iterator[tuple[object, ...]]:
        for name in names:
            with engine(model, scheduling(SETTINGS[name])) as assembled:
                yield row(name, replay(assembled.engine, RealClock(), arrivals))

    table(f"Real time, {_title(arrivals, load)}", COLUMNS, rows())


def _arrivals(cost: StepCost, load: float, num_requests: int) -> list[Arrival]:
    """Three of four requests are the heavy user's."""
    most = capacity(cost, num_requests)
    arrivals = at_load(azure(LENGTH_DIVISOR)[:num_requests], load, most)
    return for_users(arrivals, {HEAVY: 3, LIGHT: 1})


def _title(arrivals: list[Arrival], load: float) -> str:
    span = arrivals[-1].time_s
    return (
        f"load {load:.0%}: {len(arrivals)} requests in {span:.0f} s, lengths / {LENGTH_DIVISOR},"
        f" at most {NUM_SEQS} at once; good is a first token in {TTFT_TARGET_S:g} s and then"
        f" {ITL_TARGET_S * 1000:g} ms each"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="alias or .gguf path")
    parser.add_argument("--only", choices=("together", "late", "simulated", "real"))
    parser.add_argument("--load", type=float, action="append", help="of the simulated runs")
    parser.add_argument("--cost", type=float, nargs=4, metavar="S", help="instead of measuring it")
    parser.add_argument("--seconds", type=float, default=75.0, help="of each real run")
    parser.add_argument("--smoke", action="store_true", help="tiny workloads: does it run at all?")
    args = parser.parse_args()
    print(about())
    if args.only in (None, "together"):
        together(args.model, *((200, 1) if args.smoke else (4000, 5)))
    if args.only in (None, "late"):
        late(args.model, *((200, 1) if args.smoke else (4000, 3)))
    if args.only not in ("together", "late"):
        policies(args)


def policies(args: argparse.Namespace) -> None:
    small = {"context": 64, "num_tokens": 3} if args.smoke else {}
    cost = StepCost(*args.cost) if args.cost else measure_cost(args.model, **small)
    print(
        f"\nSeconds of a step (--cost): {cost.fixed_s:.3g} and for each prompt token"
        f" {cost.prefill_s:.3g}, decode {cost.decode_s:.3g}, token of context {cost.context_s:.3g}"
    )
    if args.only in (None, "simulated"):
        for load in args.load or (0.7, 0.95):
            simulated(cost, load, 20 if args.smoke else 2000)
    if args.only in (None, "real"):
        names = ["defaults", "slo_itl_ms 50, delay auto"]
        load = 0.7
        most = capacity(cost, 20 if args.smoke else 500)
        num_requests = 4 if args.smoke else min(2000, int(args.seconds * load * most))
        real(args.model, cost, load, num_requests, names)


if __name__ == "__main__":
    main()
