# SPDX-License-Identifier: Apache-2.0
"""Where the kernel keeps the limits of this process, for both generations of control groups."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple


class CgroupLevel(NamedTuple):
    """One directory that limits this process; its parents limit it too."""

    path: Path
    version: int  # 1 or 2


class _Mount(NamedTuple):
    point: Path  # under the injected root
    group_root: PurePosixPath  # the group that the mount shows as its top
    version: int
    controllers: frozenset[str]


def cgroup_levels(controller: str, root: Path = Path("/")) -> list[CgroupLevel]:
    """Directories that may limit ``controller`` ("cpu", "memory"), innermost first.

    Empty where there are no control groups. A limit anywhere on the way up holds, so a caller
    takes the tightest of all levels.
    """
    levels: list[CgroupLevel] = []
    groups = _own_groups(root)
    for mount in _mounts(root):
        if mount.version == 1 and controller not in mount.controllers:
            continue
        key = controller if mount.version == 1 else ""
        levels += _climb(mount, groups.get(key, "/"))
    return levels


def read_text(path: Path) -> str | None:
    """The stripped contents, or None: a missing control file means "no limit here"."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """The number in a control file; None without one, and for words such as "max"."""
    text = read_text(path)
    try:
        return int(text) if text else None
    except ValueError:
        return None


def _climb(mount: _Mount, group: str) -> list[CgroupLevel]:
    """From this process's group up to the top of the mount.

    In a container the mount may show only the container's group as its top while the kernel names
    the group by its full path: then the path below the mount does not exist and the top stands in.
    """
    try:
        inside = PurePosixPath(group).relative_to(mount.group_root)
    except ValueError:
        inside = PurePosixPath(".")
    path = mount.point / inside
    if ".." in inside.parts or not path.is_dir():
        path = mount.point
    levels = [CgroupLevel(path, mount.version)]
    while path != mount.point:
        path = path.parent
        levels.append(CgroupLevel(path, mount.version))
    return levels


def _own_groups(root: Path) -> dict[str, str]:
    """Controller -> group path, from lines ``id:controllers:path``; "" is the unified hierarchy."""
    groups: dict[str, str] = {}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            for controller in fields[1].split(","):
                groups[controller] = fields[2]
    return groups


def _mounts(root: Path) -> list[_Mount]:
    """Control group mounts. A mountinfo line is ``id parent dev root point options... - type source
    super``; the controllers of version 1 are among the super options.
    """
    mounts: list[_Mount] = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        left, separator, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if not separator or len(place) < 5 or len(kind) < 3:
            continue
        if kind[0] in ("cgroup", "cgroup2"):
            point = root / place[4].lstrip("/")
            version = 2 if kind[0] == "cgroup2" else 1
            controllers = frozenset(kind[2].split(","))
            mounts.append(_Mount(point, PurePosixPath(place[3]), version, controllers))
    return mounts
