# SPDX-License-Identifier: Apache-2.0
"""How much memory this process may take before the kernel starts to kill.

The machine's free memory is only half of the answer: in a container the control group's limit binds
first, and page cache charged to the group does not count because the kernel gives it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from octavo.machine.cgroups import CgroupLevel, cgroup_levels, read_int, read_text

_NO_LIMIT_BYTES = 2**60  # version 1 writes "no limit" as the largest page-aligned 63-bit number


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """All in bytes.

    total       physical memory of the machine
    available   what the kernel could hand out to anyone without swapping
    limit       the tightest control group limit; None without one
    usable      what this process can still take: available, or less under the limit
    """

    total: int
    available: int
    limit: int | None
    usable: int


def memory_budget(root: Path = Path("/")) -> MemoryBudget:
    """Read the limits below ``root``. Cheap: a handful of small files."""
    total, available = _machine_memory(root)
    limit: int | None = None
    usable = available
    for level in cgroup_levels("memory", root):
        level_limit = _level_limit(level)
        if level_limit is not None:
            limit = level_limit if limit is None else min(limit, level_limit)
            usable = min(usable, max(level_limit - _level_used(level), 0))
    return MemoryBudget(total, available, limit, usable)


def _machine_memory(root: Path) -> tuple[int, int]:
    fields: dict[str, int] = {}
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdecimal():
            fields[name] = int(words[0]) * 1024  # the file counts in kibibytes
    return fields.get("MemTotal", 0), fields.get("MemAvailable", fields.get("MemFree", 0))


def _level_limit(level: CgroupLevel) -> int | None:
    name = "memory.max" if level.version == 2 else "memory.limit_in_bytes"
    limit = read_int(level.path / name)  # version 2 writes "max" for none
    return limit if limit is not None and 0 <= limit < _NO_LIMIT_BYTES else None


def _level_used(level: CgroupLevel) -> int:
    """Bytes in use less what the kernel drops on demand (file pages that nobody touched lately)."""
    name = "memory.current" if level.version == 2 else "memory.usage_in_bytes"
    used = read_int(level.path / name) or 0
    field = "inactive_file" if level.version == 2 else "total_inactive_file"
    for line in (read_text(level.path / "memory.stat") or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == field and words[1].isdecimal():
            return max(used - int(words[1]), 0)
    return used
