# SPDX-License-Identifier: Apache-2.0
"""How many compute threads pay off here, and why.

A thread beyond what the process may use is worse than useless: the kernels meet at a barrier after
every layer, so one descheduled thread stops all the others. The count is therefore the smallest of
the affinity mask, the cgroup's quota rounded down, and the physical cores in the mask.
"""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from octavo.machine.cgroups import CgroupLevel, cgroup_levels, read_int, read_text


@dataclass(frozen=True, slots=True)
class CpuBudget:
    """``threads`` is the count to use and ``reason`` the sentence that explains it.

    num_affine      CPUs in the affinity mask
    num_cores       physical cores among them; equal to num_affine where the topology is unknown
    quota_cpus      CPUs' worth of time that the control group grants; None without a quota
    """

    threads: int
    reason: str
    num_affine: int
    num_cores: int
    quota_cpus: float | None


def cpu_budget(root: Path = Path("/"), affinity: AbstractSet[int] | None = None) -> CpuBudget:
    """Read the limits below ``root``; ``affinity`` None asks the kernel for this process's mask."""
    cpus = os.sched_getaffinity(0) if affinity is None else affinity
    num_affine = max(len(cpus), 1)
    num_cores = _count_cores(root, cpus)
    quota = _quota_cpus(root)
    threads, reason = _choose(num_affine, num_cores, quota)
    return CpuBudget(threads, reason, num_affine, num_cores, quota)


def cpu_model(root: Path = Path("/")) -> str:
    """The processor's own name, or the architecture where the kernel does not tell."""
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return os.uname().machine


def _choose(num_affine: int, num_cores: int, quota: float | None) -> tuple[int, str]:
    threads, reason = num_affine, f"the affinity mask allows {_cpus(num_affine)}"
    if num_cores < threads:
        threads = num_cores
        reason = f"one per physical core: {_cpus(num_affine)} share {num_cores} cores"
    if quota is not None and max(int(quota), 1) < threads:
        threads = max(int(quota), 1)
        reason = f"the cgroup quota grants {quota:g} of {_cpus(num_affine)}"
    return threads, reason


def _cpus(count: int) -> str:
    return "1 CPU" if count == 1 else f"{count} CPUs"


def _count_cores(root: Path, cpus: AbstractSet[int]) -> int:
    """Distinct groups of hardware siblings; a CPU of unknown topology counts as a core."""
    groups = {
        read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        or str(cpu)
        for cpu in cpus
    }
    return max(len(groups), 1)


def _quota_cpus(root: Path) -> float | None:
    quotas = [_level_quota(level) for level in cgroup_levels("cpu", root)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _level_quota(level: CgroupLevel) -> float | None:
    """Quota over period, both in microseconds. Version 2 writes "max 100000" for no quota, version
    1 writes -1."""
    if level.version == 2:
        fields = (read_text(level.path / "cpu.max") or "").split()
        numbers = [int(field) for field in fields if field.isdecimal()]
        quota, period = numbers if len(numbers) == 2 else (None, None)
    else:
        quota = read_int(level.path / "cpu.cfs_quota_us")
        period = read_int(level.path / "cpu.cfs_period_us")
    if quota is None or period is None or quota <= 0 or period <= 0:
        return None
    return quota / period
