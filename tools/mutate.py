# SPDX-License-Identifier: Apache-2.0
"""Plant errors in a copy of the sources and see whether the tests notice.

    python tools/mutate.py [--only WORD] [--jobs N] [--machines]

Each error is one textual change that a tired person could make, and names the test file that is
known to notice it soonest. That file faces it first; should it fail to, all of its neighbours do,
and then the random machines that compare with an oracle. With ``--machines`` only these do, which
takes many minutes. One row per error; the exit status is 1 if any error survives.
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
TESTS = "tests/unit"
MACHINES = (
    f"{TESTS}/cache/test_block_manager_machine.py",
    f"{TESTS}/cache/test_window_machine.py",
    f"{TESTS}/scheduler/test_scheduler_machine.py",
)
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
    """``old``, which occurs exactly once in the file, becomes ``new``; ``killer`` notices."""

    name: str
    file: str
    old: str
    new: str
    killer: str


MUTATIONS = [
    Mutation(
        "a fork's references are never counted",
        "cache/block_manager.py",
        "        self._pool.share(table.ids)\n",
        "",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "the first block is freed twice",
        "cache/block_manager.py",
        "            self._pool.release(table.ids)\n",
        "            self._pool.release(table.ids + table.ids[:1])\n",
        "cache/test_pins.py",
    ),
    Mutation(
        "truncated blocks leak",
        "cache/block_manager.py",
        "        self._pool.release(dropped)\n",
        "",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "blocks replaced by a copy leak",
        "cache/copy_on_write.py",
        "        self._pool.release(given_up)\n",
        "",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "grow takes one block too few",
        "cache/copy_on_write.py",
        "        num_wanted = -(-num_tokens // self._block_size)\n",
        "        num_wanted = -(-(num_tokens - 1) // self._block_size)\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "grow takes a block before it is needed",
        "cache/copy_on_write.py",
        "        num_wanted = -(-num_tokens // self._block_size)\n",
        "        num_wanted = -(-(num_tokens + 1) // self._block_size)\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "no copy-on-write between sequences",
        "cache/copy_on_write.py",
        "        return self._pool.ref_count(block_id) > 1 or self._pool.is_retained(block_id)\n",
        "        return self._pool.is_retained(block_id)\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "no copy-on-write of published blocks",
        "cache/copy_on_write.py",
        "        return self._pool.ref_count(block_id) > 1 or self._pool.is_retained(block_id)\n",
        "        return self._pool.ref_count(block_id) > 1\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "the last owner copies too",
        "cache/copy_on_write.py",
        "        return self._pool.ref_count(block_id) > 1 or self._pool.is_retained(block_id)\n",
        "        return True\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "copy-on-write copies one slot too few",
        "cache/copy_on_write.py",
        "            num_filled = write_from - idx * self._block_size\n",
        "            num_filled = write_from - idx * self._block_size - 1\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "an evicted block stays in the index",
        "cache/block_manager.py",
        "        self._index.drop(block_id)\n",
        "",
        "cache/test_pins.py",
    ),
    Mutation(
        "what follows an evicted block stays in the index",
        "cache/prefix_index.py",
        "            leaving += _children(node)\n",
        "",
        "cache/test_prefix_index.py",
    ),
    Mutation(
        "a block is published before it is full",
        "cache/block_manager.py",
        "        num_full = min(num_computed // self.block_size, len(table.ids))\n",
        "        num_full = min(num_computed // self.block_size + 1, len(table.ids))\n",
        "cache/test_pins.py",
    ),
    Mutation(
        "a block is published before its copy is made",
        "cache/block_manager.py",
        "            if not self._pool.is_settled(table.ids[idx]):\n",
        "            if False:\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "a digest counts without its tokens",
        "cache/prefix_index.py",
        "        if node is None or node.parent is not branch or node.tokens != tokens:\n",
        "        if node is None:\n",
        "cache/test_prefix_index.py",
    ),
    Mutation(
        "the last token comes from the cache",
        "cache/admission.py",
        "        match = self._index.match(key, token_ids, len(token_ids) - 1)\n",
        "        match = self._index.match(key, token_ids, len(token_ids))\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "what is shared is also counted as available",
        "cache/admission.py",
        "            self._pool.is_cached(node.block_id) for node in match.nodes[num_hidden:]\n",
        "            False for node in match.nodes[num_hidden:]\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "the source of a copy is also counted as available",
        "cache/admission.py",
        "max(1, num_new) + self._pool.is_cached(match.partial.block_id) <= available",
        "max(1, num_new) <= available",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "the watermark is ignored",
        "cache/admission.py",
        "        if num_new > 0 and num_new + num_kept_back > available:\n",
        "        if num_new > 0 and num_new > available:\n",
        "cache/test_block_manager.py",
    ),
    Mutation(
        "limbo is skipped",
        "cache/block_pool.py",
        "        if fence > self._completed_step_id:\n",
        "        if False:\n",
        "cache/test_block_pool.py",
    ),
    Mutation(
        "the step being planned has no fence",
        "cache/block_pool.py",
        "            self._fences[block_id] = self._submitted_step_id + 1\n",
        "            self._fences[block_id] = self._submitted_step_id\n",
        "cache/test_swap_pool.py",
    ),
    Mutation(
        "the head of a prompt is evicted before its tail",
        "cache/block_pool.py",
        "        for block_id in reversed(block_ids):\n",
        "        for block_id in block_ids:\n",
        "cache/test_block_pool.py",
    ),
    Mutation(
        "a written block keeps its stale swap copy",
        "cache/copy_on_write.py",
        "            self._swap.mark_dirty(table.ids[idx])\n",
        "",
        "cache/test_swapping.py",
    ),
    Mutation(
        "a reused block keeps its stale swap copy",
        "cache/block_manager.py",
        "        self._swap.mark_dirty(block_id)\n",
        "",
        "cache/test_swapping.py",
    ),
    Mutation(
        "a block that others use is swapped out",
        "cache/swapping.py",
        "            if self._device.ref_count(block_id) == count\n",
        "",
        "cache/test_swapping.py",
    ),
    Mutation(
        "a shared block in swap counts one owner",
        "cache/swapping.py",
        "            pool.share([copy] * (movable[block_id] - 1))\n",
        "",
        "cache/test_swapping.py",
    ),
    Mutation(
        "a step brings back what it sends away",
        "cache/swapping.py",
        "if any(self._swap.pool.fence(s) > self._swap.pool.submitted_step_id for s in fresh):",
        "if False:",
        "cache/test_swapping.py",
    ),
    Mutation(
        "a step sends away what it copies",
        "cache/block_manager.py",
        "        if any(self._order.copies_into(table.ids) for table in tables.values()):\n",
        "        if False:\n",
        "cache/test_swapping.py",
    ),
    Mutation(
        "a block that is still seen is given up",
        "cache/window.py",
        "        return max(0, num_tokens - self.size + 1) // self._block_size\n",
        "        return max(0, num_tokens - self.size + 2) // self._block_size\n",
        "cache/test_window.py",
    ),
    Mutation(
        "a block behind the window leaks",
        "cache/block_manager.py",
        "        self._pool.release(hidden)\n",
        "",
        "cache/test_sliding.py",
    ),
    Mutation(
        "a block that is still to be published is given up",
        "cache/block_manager.py",
        "            end = min(end, len(table.chain))\n",
        "            pass\n",
        "cache/test_sliding.py",
    ),
    Mutation(
        "a hit takes one block too few of its window",
        "cache/admission.py",
        "        num_hidden = self._window.num_hidden(num_shared * size)\n",
        "        num_hidden = min(num_shared, self._window.num_hidden(num_shared * size) + 1)\n",
        "cache/test_sliding.py",
    ),
    Mutation(
        "a part is kept that a step may still spoil",
        "cache/holdings.py",
        "            if not self._pool.is_settled(block_id):\n",
        "            if False:\n",
        "cache/test_holdings.py",
    ),
    Mutation(
        "a part is kept that is not computed",
        "cache/holdings.py",
        "        num_kept = min(num_kept, num_computed // self._block_size)\n",
        "",
        "cache/test_holdings.py",
    ),
    Mutation(
        "a pin holds nothing",
        "cache/pins.py",
        "        self._pool.acquire(blocks)\n",
        "",
        "cache/test_pins.py",
    ),
    Mutation(
        "live sequences publish again after a reset",
        "cache/block_manager.py",
        "            table.publishes = False\n        for swapped",
        "            pass\n        for swapped",
        "cache/test_pins.py",
    ),
    Mutation(
        "suspects are reclaimed at first sight",
        "cache/audit.py",
        "if now_s - seen_s >= lease_s)",
        "if now_s - seen_s >= 0)",
        "cache/test_audit.py",
    ),
    Mutation(
        "what is evicted can be found all the same",
        "cache/block_pool.py",
        "        self._on_gone(block_id)  # may make more blocks free, never take one\n",
        "",
        "cache/test_block_pool.py",
    ),
    Mutation(
        "the swap copies of a failed step are trusted",
        "cache/block_manager.py",
        "            self._swap.forget_unsettled_copies()\n",
        "            pass\n",
        "cache/test_swapping.py",
    ),
    Mutation(
        "an ended sequence keeps its blocks",
        "scheduler/scheduler.py",
        "        self._blocks.free(seq.seq_id)\n",
        "",
        "scheduler/test_scheduler.py",
    ),
    Mutation(
        "results of a preempted sequence count",
        "scheduler/scheduler.py",
        "            if seq.epoch != epoch:\n",
        "            if False:\n",
        "scheduler/test_scheduler.py",
    ),
    Mutation(
        "beams that wait keep blocks from the one they wait for",
        "scheduler/siblings.py",
        "            num_growth = sum(_goes_on(open_seq) for open_seq in open_seqs)\n",
        "            num_growth = len(open_seqs)\n",
        "engine/test_beam_engine.py",
    ),
    Mutation(
        "a late offer of a beam is taken for its next one",
        "engine/steering.py",
        "            and beam.is_settled\n",
        "",
        "engine/test_steering.py",
    ),
]


class Verdict(NamedTuple):
    mutation: Mutation
    caught_by: str  # nothing if it survived
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


def suites(mutation: Mutation, *, only_machines: bool) -> list[tuple[str, list[str]]]:
    """What an error has to face, by name, the quickest first."""
    machines = [("machines", list(MACHINES))]
    if only_machines:
        return machines
    neighbours = f"{TESTS}/{Path(mutation.killer).parent}"
    ignored = [f"--ignore={machine}" for machine in MACHINES]
    return [
        (mutation.killer, [f"{TESTS}/{mutation.killer}"]),
        (neighbours, [neighbours, *ignored]),
        *machines,
    ]


def try_mutation(mutation: Mutation, *, only_machines: bool) -> Verdict:
    """Run one suite after the other against a copy of the sources with this error."""
    began = time.monotonic()
    caught_by = ""
    with tempfile.TemporaryDirectory(prefix="octavo-mutate-") as directory:
        scratch = Path(directory)
        source = scratch / "src"
        shutil.copytree(ROOT / "src/octavo", source / "octavo")
        path = source / "octavo" / mutation.file
        text = path.read_text()
        if text.count(mutation.old) != 1:
            sys.exit(f"{mutation.file}: {mutation.name!r} fits {text.count(mutation.old)} places")
        path.write_text(text.replace(mutation.old, mutation.new))
        for name, arguments in suites(mutation, only_machines=only_machines):
            if not run_tests(source, scratch, *arguments):
                caught_by = name
                break
    return Verdict(mutation, caught_by, time.monotonic() - began)


def is_sound(chosen: list[Mutation], *, only_machines: bool) -> bool:
    """Whether the tests pass with no error planted: else catching one means nothing."""
    killers = sorted({f"{TESTS}/{mutation.killer}" for mutation in chosen})
    with tempfile.TemporaryDirectory(prefix="octavo-mutate-") as directory:
        arguments = MACHINES if only_machines else killers
        return run_tests(ROOT / "src", Path(directory), *arguments)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="errors whose name or file contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--machines", action="store_true", help="face only the random machines")
    options = parser.parse_args()
    began = time.monotonic()
    chosen = [m for m in MUTATIONS if options.only in m.name or options.only in m.file]
    if not is_sound(chosen, only_machines=options.machines):
        print("the tests fail without any error planted: fix that first")
        return 1
    print(f"{'planted error':56} {'file':24} {'caught by':32} seconds")
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(
            lambda mutation: try_mutation(mutation, only_machines=options.machines), chosen
        ):
            survivors += not verdict.caught_by
            print(
                f"{verdict.mutation.name:56} {verdict.mutation.file:24}"
                f" {verdict.caught_by or 'SURVIVED':32} {verdict.seconds:7.1f}",
                flush=True,
            )
    num_caught = len(chosen) - survivors
    seconds = time.monotonic() - began
    print(f"{num_caught} of {len(chosen)} planted errors caught in {seconds:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
