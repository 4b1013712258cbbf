# SPDX-License-Identifier: Apache-2.0
"""Random histories of a scheduler in pools that are far too small, over a worker that checks all.

Whatever the policy, the way of preempting, the sizes of pools and steps, the number of samples,
and whoever is aborted or fails: after every step each account balances, each request that ends by
itself has exactly the tokens that it would have had alone, nothing is left, and there is an end.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from echo import EchoExecutor, PlanError, checksum_rule, expected_tokens
from echo_parts import windowed_rule
from octavo.cache.block_manager import BlockManager
from octavo.scheduler.scheduler import Scheduler
from octavo.scheduler.service import Service
from octavo.types.config import SchedulerConfig
from octavo.types.errors import CorruptState, StepFailed
from octavo.types.outputs import FinishReason
from octavo.types.request import Request, ServiceClass
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus
from octavo.types.step import RowSampling

BLOCK_SIZE = 8
STEPS_MAX = 6000


@dataclass
class World:
    rng: random.Random
    config: SchedulerConfig
    executor: EchoExecutor
    blocks: BlockManager
    scheduler: Scheduler
    samples_max: int
    now: float = 0.0
    num_steps: int = 0
    next_id: int = 0
    live: dict[int, SequenceGroup] = field(default_factory=dict)
    ended: list[SequenceGroup] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    prompts: list[list[int]] = field(default_factory=list)

    def add(self) -> None:
        rng = self.rng
        num_samples = rng.choice([1, 1, 2, self.samples_max])
        num_samples = min(num_samples, self.config.max_num_seqs, self.executor.num_rows)
        # As admission does: the prompt once and each sample's own blocks fit into an empty pool.
        num_blocks = self.blocks.num_blocks
        len_max = (num_blocks - num_samples) * BLOCK_SIZE
        if len_max < 1:
            num_samples, len_max = 1, num_blocks * BLOCK_SIZE - 1
        prompt = self.prompt(rng.randint(1, len_max))
        shared = len(prompt) // BLOCK_SIZE
        room = ((num_blocks - shared) // num_samples + shared) * BLOCK_SIZE - len(prompt)
        self.file(prompt, num_samples, min(room, rng.randint(1, 20)))

    def add_long(self) -> None:
        """One that the pool could not hold if nothing of it were ever given up."""
        num_slots = self.blocks.num_slots
        self.file(self.prompt(self.rng.randint(1, 3 * num_slots)), 1, self.rng.randint(1, 60))

    def prompt(self, length: int) -> list[int]:
        """Often one that begins as an earlier one did."""
        start: list[int] = []
        if self.prompts and self.rng.random() < 0.6:
            start = self.rng.choice(self.prompts)
            start = start[: self.rng.randint(0, len(start))]
        prompt = [*start, *(self.rng.randrange(256) for _ in range(length))][:length]
        self.prompts.append(prompt)
        return prompt

    def file(self, prompt: list[int], num_samples: int, max_tokens: int) -> None:
        rng = self.rng
        request = Request(
            request_id=str(self.next_id),
            prompt=None,
            prompt_token_ids=tuple(prompt),
            params=SamplingParams(
                n=num_samples,
                prompt_logprobs=rng.choice([None, None, 0]),
                timeout_s=rng.choice([None, None, None, 30.0]),
            ),
            max_tokens=max_tokens,
            eos_token_id=None,
            stop_token_ids=frozenset(),
            priority=rng.randint(-2, 2),
            service_class=rng.choice(list(ServiceClass)),
            user=rng.choice("ab"),
            cache_salt=rng.choice(["", "", "salt"]),
        )
        group = SequenceGroup(request, arrival_time=self.now, seniority=self.next_id)
        seed = rng.randrange(100)
        for sample_idx in range(num_samples):
            sampling = RowSampling(temperature=1.0, seed=seed, sample_idx=sample_idx)
            group.sequences.append(Sequence(self.next_id, group, sampling))
            self.next_id += 1
        self.live[group.seniority] = group
        self.scheduler.add(group)

    def end(self, group: SequenceGroup, reason: FinishReason) -> None:
        for seq in group.unfinished:
            self.scheduler.finish(seq, reason, None)
        self.retire(group)

    def retire(self, group: SequenceGroup) -> None:
        if group.is_finished and self.live.pop(group.seniority, None) is not None:
            self.ended.append(group)

    def abort(self) -> None:
        if self.live:
            self.end(self.rng.choice(list(self.live.values())), FinishReason.ABORT)

    def force(self) -> None:
        if self.scheduler.running:
            self.scheduler.force_preempt(self.rng.choice(list(self.scheduler.running)))

    def step(self) -> None:
        self.now += self.rng.choice([0.01, 0.1, 1.0])
        for group in self.scheduler.expire(self.now):
            self.end(group, FinishReason.TIMEOUT)
        while self.scheduler.num_inflight < self.executor.depth:
            plan = self.scheduler.plan(self.now)
            self.scheduler.check()
            if plan is None:
                break
            self.seen["copies"] += len(plan.copies)
            self.seen["swap_ins"] += len(plan.swap_ins)
            self.seen["swap_outs"] += len(plan.swap_outs)
            self.seen["forks"] += sum(work.logits_of is not None for work in plan.work)
            self.seen["cached"] += sum(opened.num_computed > 0 for opened in plan.opened)
            self.executor.submit(plan)
        if not self.scheduler.num_inflight:
            assert not self.live, f"{len(self.live)} groups and nothing to plan"
            return
        try:
            result = self.executor.collect()
        except StepFailed:
            for seq in self.scheduler.fail_step():
                if not seq.is_finished:
                    self.end(seq.group, FinishReason.ERROR)
        else:
            if self.rng.random() < 0.1:
                self.abort()
            result = replace(result, compute_s=0.001 + 0.001 * self.rng.random())
            for progress in self.scheduler.commit(result):
                self.take(progress.seq, progress.result.error)
                self.score(progress.seq, progress.first_scored, len(progress.result.scored))
        self.scheduler.check()
        self.num_steps += 1
        assert self.num_steps < STEPS_MAX, "no end"

    def score(self, seq: Sequence, first: int, count: int) -> None:
        if count:
            assert first <= seq.num_scored, "a position is never scored"
            seq.num_scored = max(seq.num_scored, first + count)

    def take(self, seq: Sequence, error: str | None) -> None:
        if error is not None:
            self.end(seq.group, FinishReason.ERROR)
        elif not seq.is_finished and seq.num_tokens == seq.num_tokens_max:
            self.scheduler.finish(seq, FinishReason.LENGTH, None)
            self.retire(seq.group)


def make_world(
    seed: int, fail_rate: float = 0.0, window: int | None = None, **fixed: object
) -> World:
    rng = random.Random(seed)
    num_rows = rng.randint(1, 8)
    executor = EchoExecutor(
        num_blocks=rng.randint(3, 14),
        block_size=BLOCK_SIZE,
        num_rows=num_rows,
        num_swap_blocks=rng.choice([0, 2, 5, 20]),
        depth=rng.randint(1, 3),
        rule=checksum_rule if window is None else windowed_rule(window),
    )
    executor.window = window
    executor.fail_steps |= {i for i in range(1, STEPS_MAX) if rng.random() < fail_rate}
    choices: dict[str, object] = {
        "max_num_seqs": rng.randint(1, 8),
        "max_num_batched_tokens": rng.choice([1, 5, 8, 40]),
        "scheduling_policy": rng.choice(
            ["fcfs", "priority", "sjf", "hrrn", "lpm", "fair", "weighted"]
        ),
        "max_queue_wait_s": rng.choice([0, 5]),
        "admission_window": rng.choice([1, 4, 64]),
        "lookahead_window": rng.choice([0, 2, 8]),
        "max_overtakes": rng.choice([0, 2, 16]),
        "max_overtake_steps": rng.choice([0, 1, 5]),
        "admission_reserve": rng.choice(["none", "prompt", "expected", "full"]),
        "max_num_partial_prefills": rng.choice([1, 2, 4]),
        "max_long_partial_prefills": rng.choice([1, 2]),
        "long_prefill_token_threshold": rng.choice([0, 16]),
        "scheduler_delay_factor": rng.choice([0, 2.0, "auto"]),
        "slo_itl_ms": rng.choice([None, None, 2.0]),
        "slo_ttft_ms": rng.choice([None, None, 50.0]),
        "min_prefill_tokens": rng.choice([1, 16]),
        "preemption_mode": rng.choice(["swap", "recompute", "auto", "legacy"]),
        "max_preemptions": rng.choice([0, 1, 3]),
        "priority_preemption": rng.choice([True, False]),
        "priority_preemption_gap": rng.choice([0, 1, 2]),
        "promoted_share": rng.choice([0, 0.25, 0.9]),
        "ageing_weight": rng.choice([0, 1.0]),
        "block_weight": rng.choice([0, 0.5]),
        "batch_reserve": rng.choice([0, 0, 0.2, 0.5]),
        "high_watermark": rng.choice([0, 0.02, 0.3]),
        "partial_preemption": rng.choice([True, True, False]),
        "max_num_active_seqs": rng.choice([None, None, 2, 5]),
        "prefill_share": rng.choice([1, 1, 0.3]),
    }
    config = SchedulerConfig(**(choices | fixed))  # type: ignore[arg-type]
    blocks = BlockManager(
        executor.num_blocks,
        BLOCK_SIZE,
        num_swap_blocks=executor.num_swap_blocks,
        prefix_caching=rng.random() < 0.8,
        watermark=rng.choice([0.0, 0.1]),
        window=window,
    )
    scheduler = Scheduler(blocks, config, num_rows=num_rows)
    return World(rng, config, executor, blocks, scheduler, samples_max=rng.randint(2, 4))


def play(seed: int, fail_rate: float = 0.0, num_events: int = 250, **fixed: object) -> World:
    world = make_world(seed, fail_rate, **fixed)  # type: ignore[arg-type]
    window_blocks = world.blocks.window.num_blocks_max
    forgets = window_blocks is not None and window_blocks < world.blocks.num_blocks
    for _ in range(num_events):
        add = world.add_long if forgets and world.rng.random() < 0.5 else world.add
        event = world.rng.choices([add, world.abort, world.force, world.step], [2, 0.5, 0.5, 12])[0]
        event()
        world.scheduler.check()
    while world.live or world.scheduler.num_inflight:
        world.step()
    return world


def assert_right(world: World) -> None:
    window = world.executor.window
    for group in world.ended:
        for seq in group.sequences:
            expected = expected_tokens(
                seq.token_ids[: seq.num_prompt],
                seq.num_tokens_max - seq.num_prompt,
                seq.sampling,
                checksum_rule if window is None else windowed_rule(window),
            )
            if seq.finish_reason is not FinishReason.LENGTH:
                expected = expected[: seq.num_outputs]
            elif seq.num_to_score:
                assert seq.num_scored == seq.num_prompt
            assert seq.output_token_ids == expected
            assert seq.status is SequenceStatus.FINISHED
    usage = world.blocks.usage()
    assert usage.num_free + usage.num_cached == usage.num_blocks
    assert usage.num_swap_referenced == usage.num_swap_limbo == 0
    assert not world.scheduler.has_groups
    world.scheduler.check()


@pytest.mark.parametrize("seed", range(40))
def test_every_answer_is_the_one_it_would_have_been_alone(seed: int) -> None:
    assert_right(play(seed))


@pytest.mark.parametrize("seed", range(1000, 1018))
def test_and_so_it_is_when_steps_fail(seed: int) -> None:
    assert_right(play(seed, fail_rate=0.05))


@pytest.mark.parametrize("seed", range(2000, 2024))
def test_and_when_what_is_behind_a_window_is_given_up(seed: int) -> None:
    window = random.Random(seed).choice([2, 7, 9, 16, 20])
    assert_right(play(seed, fail_rate=0.02 * (seed % 2), window=window))


@pytest.mark.parametrize("seed", range(2000, 2016))
def test_and_so_it_is_in_static_batches(seed: int) -> None:
    reserve = ("max_model_len", "none", "full", "prompt")[seed % 4]
    fixed = {"batching": "static", "admission_reserve": reserve, "max_model_len": 100}
    assert_right(play(seed, fail_rate=0.02 * (seed % 2), **fixed))


def test_the_histories_do_all_that_they_should_test() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        world = play(seed)
        seen += world.seen
        counts = world.scheduler.preemptions
        seen["swaps"] += counts.num_swaps
        seen["recomputes"] += counts.num_recomputes
        seen["partials"] += counts.num_partials
        seen["fallbacks"] += counts.num_swap_fallbacks
        seen["clean"] += counts.num_clean_blocks
        seen["promotions"] += world.scheduler.num_promotions
        for group in world.ended:
            seen.update(str(seq.finish_reason) for seq in group.sequences)
    kinds = (
        "copies swap_ins swap_outs forks cached swaps recomputes partials fallbacks clean"
        " promotions length abort timeout"
    )
    rare = {kind: seen[kind] for kind in kinds.split() if seen[kind] < 10}
    assert not rare


def _never_copies(service: Service, *args: object) -> object:
    seq, end = args[0], args[1]
    seq.num_owned = max(seq.num_owned, end if seq.num_owned or seq.num_planned == 0 else end - 1)
    return _REAL_EXTEND(service, *args)  # type: ignore[arg-type]


_REAL_EXTEND = Service._extend


def test_a_planted_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that writes without asking writes to blocks that others share, or lacks them."""
    monkeypatch.setattr(Service, "_extend", _never_copies)

    def play_all() -> None:
        for seed in range(15):
            assert_right(play(seed))

    with pytest.raises((PlanError, CorruptState, AssertionError)):
        play_all()
