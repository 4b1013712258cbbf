# SPDX-License-Identifier: Apache-2.0
"""A machine in a folder: the files of /proc and /sys that octavo.machine reads."""

from __future__ import annotations

from pathlib import Path


class MachineTree:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        self._groups = ""

    def write(self, path: str, text: str) -> MachineTree:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return self

    def cgroup2(self, group: str, *, make_dirs: bool = True, mount_root: str = "/") -> MachineTree:
        return self._mount("sys/fs/cgroup", "cgroup2", "", group, make_dirs, mount_root)

    def cgroup1(self, controller: str, group: str) -> MachineTree:
        return self._mount(f"sys/fs/cgroup/{controller}", "cgroup", controller, group, True, "/")

    def _mount(
        self, point: str, kind: str, controller: str, group: str, make_dirs: bool, mount_root: str
    ) -> MachineTree:
        options = f"rw,{controller}" if controller else "rw"
        self._mounts += f"30 22 0:26 {mount_root} /{point} rw shared:4 - {kind} cgroup {options}\n"
        self._groups += f"{1 if controller else 0}:{controller}:{group}\n"
        inside = group.lstrip("/") if make_dirs else ""
        (self.root / point / inside).mkdir(parents=True, exist_ok=True)
        self.write("proc/self/mountinfo", self._mounts)
        return self.write("proc/self/cgroup", self._groups)
