# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of the engine share: engines, made-up prompts, tables and where they ran."""

from __future__ import annotations

import platform
import random
import statistics
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from octavo.assemble import Assembled, build_engine
from octavo.types.config import CacheConfig, EngineConfig, RuntimeConfig
from octavo.types.sampling_params import OutputKind, SamplingParams

HERE = Path(__file__).parent
CONFIG = EngineConfig(
    cache=CacheConfig(enable_prefix_caching=False, num_blocks=2048),
    runtime=RuntimeConfig(seed=0, pipeline_depth=1),
)
# One token of answer more or less must not depend on what a random prompt makes the model say.
GREEDY = SamplingParams(
    temperature=0.0, ignore_eos=True, detokenize=False, output_kind=OutputKind.DELTA
)


@contextmanager
def engine(model: str, config: EngineConfig = CONFIG) -> Iterator[Assembled]:
    assembled = build_engine(model, config)
    try:
        yield assembled
    finally:
        assembled.close()


def ids(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(length)]


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed; nan of none."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def median_of(runs: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(runs))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table in Markdown, printed row by row as the rows come."""
    print(f"\n{title}\n")
    print("| " + " | ".join(columns) + " |")
    print("|---" + "|---:" * (len(columns) - 1) + "|", flush=True)
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |", flush=True)


def about() -> str:
    """Machine and commit, for the line under every table."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = f"{len(names)} x {names[0].split(':')[1].strip()}" if names else cpu
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"Machine: {cpu}; commit {done.stdout.strip() or 'unknown'}"
