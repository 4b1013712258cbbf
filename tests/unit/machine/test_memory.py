# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from machine_tree import MachineTree
from octavo.machine import memory_budget

GIB = 2**30
MEMINFO = f"MemTotal: {16 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {8 * 2**20} kB\n"


def machine(tmp_path):
    return MachineTree(tmp_path).write("proc/meminfo", MEMINFO)


def test_without_a_limit_what_is_available_is_usable(tmp_path):
    machine(tmp_path).cgroup2("/job").write("sys/fs/cgroup/job/memory.max", "max\n")
    budget = memory_budget(tmp_path)
    assert (budget.total, budget.available) == (16 * GIB, 8 * GIB)
    assert (budget.limit, budget.usable) == (None, 8 * GIB)


def test_under_a_limit_droppable_page_cache_does_not_count(tmp_path):
    tree = machine(tmp_path).cgroup2("/job")
    tree.write("sys/fs/cgroup/job/memory.max", str(4 * GIB))
    tree.write("sys/fs/cgroup/job/memory.current", str(3 * GIB))
    tree.write("sys/fs/cgroup/job/memory.stat", f"anon 5\ninactive_file {2 * GIB}\n")
    budget = memory_budget(tmp_path)
    assert (budget.limit, budget.usable) == (4 * GIB, 3 * GIB)


def test_the_tightest_level_holds_for_limit_and_for_use(tmp_path):
    tree = machine(tmp_path).cgroup2("/user/job")
    tree.write("sys/fs/cgroup/user/job/memory.max", str(3 * GIB))
    tree.write("sys/fs/cgroup/user/memory.max", str(4 * GIB))
    tree.write("sys/fs/cgroup/user/memory.current", str(4 * GIB))
    budget = memory_budget(tmp_path)
    assert (budget.limit, budget.usable) == (3 * GIB, 0)


def test_version_1_and_its_way_of_writing_no_limit(tmp_path):
    tree = machine(tmp_path).cgroup1("memory", "/job")
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    tree.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", str(2 * GIB))
    tree.write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", str(GIB))
    tree.write("sys/fs/cgroup/memory/job/memory.stat", f"total_inactive_file {GIB // 2}\n")
    budget = memory_budget(tmp_path)
    assert (budget.limit, budget.usable) == (2 * GIB, GIB + GIB // 2)


def test_an_unreadable_machine_has_no_memory_rather_than_a_crash(tmp_path):
    budget = memory_budget(tmp_path)
    assert (budget.total, budget.usable, budget.limit) == (0, 0, None)


def test_this_machine():
    budget = memory_budget()
    assert 0 < budget.usable <= budget.available <= budget.total
