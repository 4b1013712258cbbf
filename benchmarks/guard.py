# SPDX-License-Identifier: Apache-2.0
"""Fails when a matrix kernel has lost its lead over the scalar one: a guard, not a measurement.

    python benchmarks/guard.py build/native/gemm_bench

A ratio of two speeds that were taken a moment apart says little of the machine and its load, and
much of the code: a kernel that spills registers, or was compiled without its flags, loses a factor.
Limits are a third of what was measured (LOG.md has the ratios), so that noise does not trip them.
"""

from __future__ import annotations

import json
import subprocess
import sys

TOKENS = "8"  # two activation tiles: a batch of decodes
ROUNDS = 3

# By table, then by weight type: the least multiple of the scalar kernel's speed.
LIMITS = {
    "avx2": {"q4_1": 10.0, "q8_0": 6.0, "q4_k": 10.0},
    "avx_vnni": {"q4_1": 12.0, "q8_0": 8.0, "q4_k": 12.0},
    "avx512_vnni": {"q4_1": 20.0, "q8_0": 12.0, "q4_k": 20.0},
}


def speed(bench: str, isa: str, weight_type: str) -> float | None:
    """GMAC/s of the type's last shape; None where the table cannot run."""
    command = [bench, "--isa", isa, "--type", weight_type, "--tokens", TOKENS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return float(rows[-1]["gmac_s"])


def ratio(bench: str, isa: str, weight_type: str) -> float | None:
    """The best of some rounds, each of which takes both speeds."""
    found = []
    for _ in range(ROUNDS):
        fast, slow = speed(bench, isa, weight_type), speed(bench, "scalar", weight_type)
        if fast is None or slow is None:
            return None
        found.append(fast / slow)
        if found[-1] >= LIMITS[isa][weight_type]:
            break
    return max(found)


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    lost = []
    for isa, limits in LIMITS.items():
        for weight_type, limit in limits.items():
            times = ratio(sys.argv[1], isa, weight_type)
            if times is None:
                print(f"{isa:12} cannot run here")
                break
            print(f"{isa:12} {weight_type:5} {times:6.1f} times scalar, at least {limit:g} wanted")
            if times < limit:
                lost.append(f"{isa} {weight_type}")
    if lost:
        raise SystemExit(f"slower than they were: {', '.join(lost)}")


if __name__ == "__main__":
    main()
