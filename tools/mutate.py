# SPDX-License-Identifier: Apache-2.0
"""Plant errors in a copy of the sources and see whether the tests notice.

    python tools/mutate.py [--only WORD] [--jobs N]

Each error is one textual change that a tired person could make. Two suites face it on their own:
the tests that read like the requirements, and the random machine that compares with an oracle. One
row per error; the exit status is 1 if any error survives both.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/unit/cache"
MACHINE = f"{TESTS}/test_block_manager_machine.py"
TIMEOUT_S = 120  # an error that makes the tests hang is caught too

# Python's own path comes last in an editable installation, so the finder that would lead back to
# the unchanged sources is removed first.
RUN = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "Editable" not in type(finder).__name__
                 and "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
import octavo
assert octavo.__file__ is None or octavo.__file__.startswith(sys.argv[1]), octavo.__file__
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


class Mutation(NamedTuple):
    """``old``, which occurs exactly once in the file, becomes ``new``."""

    name: str
    file: str
    old: str
    new: str


MUTATIONS = [
    Mutation(
        "a fork's references are never counted",
        "block_manager.py",
        "        self._pool.share(table.ids)\n",
        "",
    ),
    Mutation(
        "the first block is freed twice",
        "block_manager.py",
        "            self._pool.release(table.ids)\n",
        "            self._pool.release(table.ids + table.ids[:1])\n",
    ),
    Mutation(
        "truncated blocks leak",
        "block_manager.py",
        "        self._pool.release(dropped)\n",
        "",
    ),
    Mutation(
        "blocks replaced by a copy leak",
        "block_manager.py",
        "        self._pool.release(given_up)\n",
        "",
    ),
    Mutation(
        "grow takes one block too few",
        "block_manager.py",
        "        num_wanted = self.num_blocks_for(num_tokens)\n",
        "        num_wanted = self.num_blocks_for(num_tokens - 1)\n",
    ),
    Mutation(
        "grow takes a block before it is needed",
        "block_manager.py",
        "        num_wanted = self.num_blocks_for(num_tokens)\n",
        "        num_wanted = self.num_blocks_for(num_tokens + 1)\n",
    ),
    Mutation(
        "no copy-on-write between sequences",
        "block_manager.py",
        "        return self._pool.ref_count(block_id) > 1 or self._pool.is_retained(block_id)\n",
        "        return self._pool.is_retained(block_id)\n",
    ),
    Mutation(
        "no copy-on-write of published blocks",
        "block_manager.py",
        "        return self._pool.ref_count(block_id) > 1 or self._pool.is_retained(block_id)\n",
        "        return self._pool.ref_count(block_id) > 1\n",
    ),
    Mutation(
        "the last owner copies too",
        "block_manager.py",
        "        return self._pool.ref_count(block_id) > 1 or self._pool.is_retained(block_id)\n",
        "        return True\n",
    ),
    Mutation(
        "copy-on-write copies one slot too few",
        "block_manager.py",
        "            num_filled = write_from - idx * self.block_size\n",
        "            num_filled = write_from - idx * self.block_size - 1\n",
    ),
    Mutation(
        "an evicted block stays in the index",
        "block_manager.py",
        "        self._index.drop(block_id)\n",
        "",
    ),
    Mutation(
        "what follows an evicted block stays in the index",
        "prefix_index.py",
        "            leaving += _children(node)\n",
        "",
    ),
    Mutation(
        "a block is published before it is full",
        "block_manager.py",
        "        num_full = min(num_computed // self.block_size, len(table.ids))\n",
        "        num_full = min(num_computed // self.block_size + 1, len(table.ids))\n",
    ),
    Mutation(
        "a block is published before its copy is made",
        "block_manager.py",
        "            if not self._pool.is_settled(table.ids[idx]):\n",
        "            if False:\n",
    ),
    Mutation(
        "a digest counts without its tokens",
        "prefix_index.py",
        "        if node is None or node.parent is not branch or node.tokens != tokens:\n",
        "        if node is None:\n",
    ),
    Mutation(
        "the last token comes from the cache",
        "admission.py",
        "        match = self._index.match(key, token_ids, len(token_ids) - 1)\n",
        "        match = self._index.match(key, token_ids, len(token_ids))\n",
    ),
    Mutation(
        "what is shared is also counted as available",
        "admission.py",
        "            self._pool.is_cached(node.block_id) for node in match.nodes\n",
        "            False for node in match.nodes\n",
    ),
    Mutation(
        "the source of a copy is also counted as available",
        "admission.py",
        "max(1, num_new) + self._pool.is_cached(match.partial.block_id) <= available",
        "max(1, num_new) <= available",
    ),
    Mutation(
        "the watermark is ignored",
        "admission.py",
        "        if num_new > 0 and num_new + num_kept_back > available:\n",
        "        if num_new > 0 and num_new > available:\n",
    ),
    Mutation(
        "limbo is skipped",
        "block_pool.py",
        "        if fence > self._completed_step_id:\n",
        "        if False:\n",
    ),
    Mutation(
        "the step being planned has no fence",
        "block_pool.py",
        "            self._fences[block_id] = self._submitted_step_id + 1\n",
        "            self._fences[block_id] = self._submitted_step_id\n",
    ),
    Mutation(
        "the head of a prompt is evicted before its tail",
        "block_pool.py",
        "        for block_id in reversed(block_ids):\n",
        "        for block_id in block_ids:\n",
    ),
    Mutation(
        "a written block keeps its stale swap copy",
        "block_manager.py",
        "            self._swap.mark_dirty(table.ids[idx])\n",
        "",
    ),
    Mutation(
        "a reused block keeps its stale swap copy",
        "block_manager.py",
        "        self._swap.mark_dirty(block_id)\n",
        "",
    ),
    Mutation(
        "a block that others use is swapped out",
        "swapping.py",
        "            if self._device.ref_count(block_id) == count\n",
        "",
    ),
    Mutation(
        "a shared block in swap counts one owner",
        "swapping.py",
        "            pool.share([copy] * (movable[block_id] - 1))\n",
        "",
    ),
    Mutation(
        "a step brings back what it sends away",
        "swapping.py",
        "if any(self._swap.pool.fence(s) > self._swap.pool.submitted_step_id for s in fresh):",
        "if False:",
    ),
    Mutation(
        "a step sends away what it copies",
        "block_manager.py",
        "        if any(self._order.copies_into(table.ids) for table in tables.values()):\n",
        "        if False:\n",
    ),
    Mutation(
        "a pin holds nothing",
        "pins.py",
        "        self._pool.acquire(blocks)\n",
        "",
    ),
    Mutation(
        "live sequences publish again after a reset",
        "block_manager.py",
        "            table.publishes = False\n        for swapped",
        "            pass\n        for swapped",
    ),
    Mutation(
        "suspects are reclaimed at first sight",
        "audit.py",
        "if now_s - seen_s >= lease_s)",
        "if now_s - seen_s >= 0)",
    ),
]


class Verdict(NamedTuple):
    mutation: Mutation
    by_units: bool
    by_machine: bool
    seconds: float


def run_tests(source: Path, scratch: Path, *arguments: str) -> bool:
    """Whether the tests pass with these sources."""
    command = [sys.executable, "-B", "-c", RUN, str(source), "-q", "-x", "-p", "no:cacheprovider"]
    command += ["--hypothesis-profile=mutate", "--hypothesis-seed=0", *arguments]
    # Nothing of this may be remembered as an example for the next honest run.
    environment = os.environ | {"HYPOTHESIS_STORAGE_DIRECTORY": str(scratch / "hypothesis")}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):  # neither passed nor failed: the tests did not run
        sys.exit(
            f"pytest: exit status {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}"
        )
    return done.returncode == 0


def try_mutation(mutation: Mutation | None) -> Verdict:
    """Run both suites against a copy of the sources with this error, or without any."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="octavo-mutate-") as directory:
        scratch = Path(directory)
        source = scratch / "src"
        shutil.copytree(ROOT / "src/octavo", source / "octavo")
        if mutation is not None:
            path = source / "octavo/cache" / mutation.file
            text = path.read_text()
            if text.count(mutation.old) != 1:
                sys.exit(
                    f"{mutation.file}: {mutation.name!r} fits {text.count(mutation.old)} places"
                )
            path.write_text(text.replace(mutation.old, mutation.new))
        units = run_tests(source, scratch, TESTS, f"--ignore={MACHINE}")
        machine = run_tests(source, scratch, MACHINE)
    none = Mutation("no error", "", "", "")
    return Verdict(mutation or none, not units, not machine, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="errors whose name or file contains this")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if options.only in m.name or options.only in m.file]
    baseline = try_mutation(None)
    if baseline.by_units or baseline.by_machine:
        print("the tests fail without any error planted: fix that first")
        return 1
    print(f"{'planted error':52} {'file':18} {'tests':8} {'machine':8} seconds")
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(try_mutation, chosen):
            words = ["caught" if caught else "-" for caught in verdict[1:3]]
            survived = not (verdict.by_units or verdict.by_machine)
            survivors += survived
            print(
                f"{verdict.mutation.name:52} {verdict.mutation.file:18} {words[0]:8} {words[1]:8}"
                f" {verdict.seconds:7.1f}{'  SURVIVED' if survived else ''}",
                flush=True,
            )
    print(f"{len(chosen) - survivors} of {len(chosen)} planted errors caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
