# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from machine_tree import MachineTree
from octavo.machine.cgroups import cgroup_levels


def test_version_2_climbs_from_the_own_group_to_the_mount(tmp_path):
    tree = MachineTree(tmp_path).cgroup2("/user/job")
    top = tmp_path / "sys/fs/cgroup"
    assert [level.path for level in cgroup_levels("cpu", tmp_path)] == [
        top / "user/job",
        top / "user",
        top,
    ]
    assert {level.version for level in cgroup_levels("memory", tree.root)} == {2}


def test_version_1_takes_the_mount_of_its_controller(tmp_path):
    MachineTree(tmp_path).cgroup1("cpu", "/job").cgroup1("memory", "/other")
    levels = cgroup_levels("memory", tmp_path)
    assert [level.path for level in levels] == [
        tmp_path / "sys/fs/cgroup/memory/other",
        tmp_path / "sys/fs/cgroup/memory",
    ]
    assert levels[0].version == 1


def test_in_a_container_the_mount_stands_for_a_path_that_is_not_below_it(tmp_path):
    MachineTree(tmp_path).cgroup2("/docker/abc", make_dirs=False)
    assert [level.path for level in cgroup_levels("cpu", tmp_path)] == [tmp_path / "sys/fs/cgroup"]


def test_a_mount_that_shows_only_the_own_group_is_that_group(tmp_path):
    MachineTree(tmp_path).cgroup2("/docker/abc", make_dirs=False, mount_root="/docker/abc")
    assert [level.path for level in cgroup_levels("cpu", tmp_path)] == [tmp_path / "sys/fs/cgroup"]


def test_a_path_that_climbs_out_is_not_followed(tmp_path):
    MachineTree(tmp_path).cgroup2("/../../etc", make_dirs=False)
    (tmp_path / "etc").mkdir()
    assert [level.path for level in cgroup_levels("cpu", tmp_path)] == [tmp_path / "sys/fs/cgroup"]


def test_no_control_groups_and_garbage_are_no_levels(tmp_path):
    assert cgroup_levels("cpu", tmp_path) == []
    tree = MachineTree(tmp_path)
    tree.write("proc/self/mountinfo", "garbage\n1 2 3 - cgroup2\n - \n")
    tree.write("proc/self/cgroup", "no colons here\n")
    assert cgroup_levels("cpu", tmp_path) == []
