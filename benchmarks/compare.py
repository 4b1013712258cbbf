# SPDX-License-Identifier: Apache-2.0
"""octavo beside its peers: the same weights, the same workloads, one run.

Each engine lives in a child process of its own (``benchmarks/sides/``) that answers one JSON line
per workload. Rounds alternate between engines, so drift of the machine hits all alike; the table
gives medians and the last line is one JSON document for programs.

    python benchmarks/compare.py --peer-python /tmp/peers/bin/python
    python benchmarks/compare.py --smoke          # seconds; what the test suite runs
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Workload:
    """``num_seqs`` prompts of ``prompt_tokens`` random ids; then ``output_tokens`` each, greedy.

    ``shared_tokens`` ids come before all of the prompts and are the same for all of them.
    Metric: generated tokens per second of the decode part, or prompt tokens per second when only
    one token is generated, or, ``whole``, generated tokens per second from the first prompt to the
    last token, however a side gets there.
    """

    name: str
    num_seqs: int
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int = 0
    whole: bool = False


FULL = (
    Workload("decode, 1", 1, 128, 64),
    Workload("decode, 8", 8, 128, 64),
    Workload("decode, 32", 32, 128, 64),
    Workload("prefill 512", 1, 512, 1),
)
SHARED = (
    Workload("32 sequences, 1000 shared, end to end", 32, 20, 64, 1000, True),
    Workload("8 samples of a 512-token prompt, end to end", 8, 1, 64, 511, True),
)
SMOKE = (
    Workload("decode, 2", 2, 8, 4),
    Workload("prefill 16", 1, 16, 1),
    Workload("2 sequences, 40 shared", 2, 8, 4, 40, True),
)


class Side:
    """One engine in its own process. ``measure`` blocks until the child has answered."""

    def __init__(self, name: str, python: str, model: str, threads: int, context: int) -> None:
        self.name = name
        script = HERE / "sides" / f"{name.replace('.', '_')}_side.py"
        command = [python, str(script), model, str(threads), str(context)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.about = self._read()

    def peak_mb(self) -> float:
        """Most memory that the child has had resident, in MB."""
        for line in Path(f"/proc/{self._child.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1000
        return 0.0

    def measure(self, workload: Workload, seed: int) -> float:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({**asdict(workload), "seed": seed}) + "\n")
        self._child.stdin.flush()
        return float(self._read()["tokens_per_s"])

    def close(self) -> None:
        self._child.communicate()

    def _read(self) -> dict[str, object]:
        assert self._child.stdout is not None
        while line := self._child.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)  # type: ignore[no-any-return]
        raise SystemExit(f"{self.name} ended early, exit code {self._child.wait()}")


def machine() -> dict[str, object]:
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    ).stdout.strip()
    return {"cpu": cpu, "commit": commit, "date": time.strftime("%Y-%m-%d")}


def run(
    sides: list[Side], workloads: tuple[Workload, ...], repeats: int
) -> dict[str, dict[str, list[float]]]:
    results: dict[str, dict[str, list[float]]] = {}
    for workload in workloads:
        rows = results[workload.name] = {side.name: [] for side in sides}
        for repeat in range(repeats + 1):
            for side in sides:
                value = side.measure(workload, seed=repeat)
                if repeat > 0:  # the first round warms caches and page tables
                    rows[side.name].append(value)
            print(f"\r{workload.name}: {repeat}/{repeats}", end="", file=sys.stderr)
        print(file=sys.stderr)
    return results


def print_table(results: dict[str, dict[str, list[float]]], sides: list[Side]) -> None:
    names = [side.name for side in sides]
    print("| tokens/s, median (min-max) | " + " | ".join(names) + " | ratio |")
    print("|---|" + "---:|" * (len(names) + 1))
    for workload, rows in results.items():
        cells = [
            f"{statistics.median(rows[n]):.1f} ({min(rows[n]):.1f}-{max(rows[n]):.1f})"
            for n in names
        ]
        best_peer = max((statistics.median(rows[n]) for n in names[1:]), default=None)
        ratio = f"{statistics.median(rows[names[0]]) / best_peer:.2f}" if best_peer else "-"
        print(f"| {workload} | " + " | ".join(cells) + f" | {ratio} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="alias or .gguf path")
    parser.add_argument("--threads", type=int, default=2, help="compute threads of every engine")
    parser.add_argument("--repeats", type=int, default=5, help="measured rounds per workload")
    parser.add_argument(
        "--context",
        type=int,
        default=0,
        metavar="TOKENS",
        help="KV cache of every engine, to compare memory; 0 (default): octavo's own choice, which"
        " keeps what it has computed as prefix cache, and 8,192 for llama.cpp",
    )
    parser.add_argument("--peer-python", help="interpreter that has llama-cpp-python")
    parser.add_argument(
        "--shared", action="store_true", help="also the workloads that share prompts"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny workloads: does it run at all?")
    args = parser.parse_args()
    sides = [Side("octavo", sys.executable, args.model, args.threads, args.context)]
    if args.peer_python:
        path = str(sides[0].about["path"])
        sides.append(Side("llama.cpp", args.peer_python, path, args.threads, args.context or 8192))
    workloads, repeats = (SMOKE, 1) if args.smoke else (FULL, args.repeats)
    results = run(sides, workloads + (SHARED if args.shared else ()), repeats)
    about = {**machine(), "model": args.model, "threads": args.threads, "repeats": repeats}
    about["context"] = args.context
    about["sides"] = {side.name: side.about for side in sides}
    about["peak_mb"] = {side.name: round(side.peak_mb()) for side in sides}
    print_table(results, sides)
    print("peak memory: " + ", ".join(f"{n} {mb} MB" for n, mb in about["peak_mb"].items()))
    print(json.dumps({"about": about, "results": results}))
    for side in sides:
        side.close()


if __name__ == "__main__":
    main()
