# SPDX-License-Identifier: Apache-2.0
"""What planning costs: microseconds of ``plan`` and ``commit`` for each running sequence and step.

    python benchmarks/engine/plan_cost.py [--num-seqs 256] [--steps 400]

No worker runs: results are made up between the timed calls. The median over steps is printed, with
two steps in flight, for sequences that decode; a block is asked for every 32 tokens, as in service.
"""

from __future__ import annotations

import argparse
import statistics
import time

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.scheduler import Scheduler
from octavo.types.config import SchedulerConfig
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence, SequenceGroup
from octavo.types.step import RowResult, RowSampling, StepPlan, StepResult

PROMPT_LEN = 48


def make_group(idx: int, max_tokens: int) -> SequenceGroup:
    request = Request(
        request_id=str(idx),
        prompt=None,
        prompt_token_ids=tuple(range(idx, idx + PROMPT_LEN)),
        params=SamplingParams(),
        max_tokens=max_tokens,
        eos_token_id=None,
        stop_token_ids=frozenset(),
    )
    group = SequenceGroup(request, arrival_time=float(idx), seniority=idx)
    group.sequences.append(Sequence(idx, group, RowSampling(seed=idx)))
    return group


def answer(plan: StepPlan) -> StepResult:
    rows = tuple(RowResult(work.row, 7 if work.samples else None) for work in plan.work)
    return StepResult(plan.step_id, rows, compute_s=0.01)


def measure(num_seqs: int, num_steps: int, num_waiting: int) -> tuple[float, float]:
    """Median seconds of one ``plan`` and one ``commit``."""
    config = SchedulerConfig(max_num_seqs=num_seqs, max_num_batched_tokens=2048)
    num_blocks = num_seqs * ((PROMPT_LEN + 2 * num_steps) // 32 + 4)
    scheduler = Scheduler(BlockManager(num_blocks, 32), config, num_rows=num_seqs)
    for idx in range(num_seqs + num_waiting):
        scheduler.add(make_group(idx, max_tokens=4 * num_steps))
    results = []
    plan_s, commit_s = [], []
    for step in range(num_steps):
        start = time.perf_counter()
        plan = scheduler.plan(now=float(num_seqs))
        planned = time.perf_counter()
        assert plan is not None
        results.append(answer(plan))
        if len(results) < 2:
            continue
        begin = time.perf_counter()
        scheduler.commit(results.pop(0))
        if step > num_steps // 4:  # by then all prompts are done
            plan_s.append(planned - start)
            commit_s.append(time.perf_counter() - begin)
    return statistics.median(plan_s), statistics.median(commit_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-seqs", type=int, default=256)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--smoke", action="store_true", help="a few steps: does it run at all?")
    args = parser.parse_args()
    steps = 10 if args.smoke else args.steps
    for num_waiting in (0, 1000):
        plan_s, commit_s = measure(args.num_seqs, steps, num_waiting)
        scale = 1e6 / args.num_seqs
        print(
            f"{args.num_seqs} running, {num_waiting} waiting: plan {plan_s * scale:.2f} us,"
            f" commit {commit_s * scale:.2f} us, together {(plan_s + commit_s) * scale:.2f} us"
            " per sequence and step"
        )


if __name__ == "__main__":
    main()
