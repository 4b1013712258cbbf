# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import pytest

from machine_tree import MachineTree
from octavo.machine import cpu_budget, cpu_model

FOUR = {0, 1, 2, 3}


def siblings(tree: MachineTree, groups: dict[int, str]) -> None:
    for cpu, group in groups.items():
        tree.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", group + "\n")


def test_without_limits_every_cpu_of_the_mask_gets_a_thread(tmp_path):
    budget = cpu_budget(tmp_path, FOUR)
    assert (budget.threads, budget.num_affine, budget.quota_cpus) == (4, 4, None)
    assert budget.reason == "the affinity mask allows 4 CPUs"
    assert cpu_budget(tmp_path, {7}).reason == "the affinity mask allows 1 CPU"


def test_hardware_siblings_share_a_thread(tmp_path):
    siblings(MachineTree(tmp_path), {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    budget = cpu_budget(tmp_path, FOUR)
    assert (budget.threads, budget.num_cores) == (2, 2)
    assert "physical core" in budget.reason


@pytest.mark.parametrize(
    ("text", "threads", "quota"),
    [
        ("150000 100000", 1, 1.5),  # rounded down: a throttled thread stalls all the others
        ("200000 100000", 2, 2.0),
        ("50000 100000", 1, 0.5),  # never none
        ("900000 100000", 4, 9.0),
        ("max 100000", 4, None),
        ("garbage", 4, None),
        ("100000 0", 4, None),
    ],
)
def test_a_version_2_quota_is_rounded_down(tmp_path, text, threads, quota):
    MachineTree(tmp_path).cgroup2("/job").write("sys/fs/cgroup/job/cpu.max", text)
    budget = cpu_budget(tmp_path, FOUR)
    assert (budget.threads, budget.quota_cpus) == (threads, quota)
    assert ("quota" in budget.reason) == (threads < 4)


def test_the_tightest_level_holds(tmp_path):
    tree = MachineTree(tmp_path).cgroup2("/user/job")
    tree.write("sys/fs/cgroup/user/job/cpu.max", "max 100000")
    tree.write("sys/fs/cgroup/user/cpu.max", "300000 100000")
    assert cpu_budget(tmp_path, FOUR).threads == 3


@pytest.mark.parametrize(("quota", "threads"), [("250000", 2), ("-1", 4)])
def test_a_version_1_quota(tmp_path, quota, threads):
    tree = MachineTree(tmp_path).cgroup1("cpu", "/")
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota)
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert cpu_budget(tmp_path, FOUR).threads == threads


def test_this_machine_is_within_its_own_mask():
    budget = cpu_budget()
    assert 1 <= budget.threads <= len(os.sched_getaffinity(0))


def test_the_cpu_has_a_name_even_where_the_kernel_gives_none(tmp_path):
    assert cpu_model(tmp_path) == os.uname().machine
    MachineTree(tmp_path).write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n")
    assert cpu_model(tmp_path) == "Fast CPU @ 3 GHz"
