# SPDX-License-Identifier: Apache-2.0
"""A scheduler over the strict worker, and the loop that drives them."""

from __future__ import annotations

from itertools import count

from echo import EchoExecutor
from octavo.cache.block_manager import BlockManager
from octavo.scheduler.scheduler import Progress, Scheduler
from octavo.types.config import SchedulerConfig
from octavo.types.outputs import FinishReason
from octavo.types.request import Request, ServiceClass
from octavo.types.sampling_params import SamplingParams
from octavo.types.sequence import Sequence, SequenceGroup
from octavo.types.step import RowSampling, StepPlan

BLOCK_SIZE = 8


def make_group(
    seniority: int,
    prompt: list[int],
    *,
    num_samples: int = 1,
    max_tokens: int = 8,
    now: float = 0.0,
    priority: int = 0,
    service_class: ServiceClass = ServiceClass.STANDARD,
    user: str = "",
    **params: object,
) -> SequenceGroup:
    request = Request(
        request_id=str(seniority),
        prompt=None,
        prompt_token_ids=tuple(prompt),
        params=SamplingParams(n=num_samples, **params),  # type: ignore[arg-type]
        max_tokens=max_tokens,
        eos_token_id=None,
        stop_token_ids=frozenset(),
        priority=priority,
        service_class=service_class,
        user=user,
    )
    group = SequenceGroup(request, arrival_time=now, seniority=seniority)
    for idx in range(num_samples):
        sampling = RowSampling(temperature=1.0, seed=seniority, sample_idx=idx)
        group.sequences.append(Sequence(seniority + idx, group, sampling))
    return group


class Rig:
    """Everything that an engine does with a scheduler, and no more. ``now`` is set by hand."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        num_rows: int = 16,
        num_swap_blocks: int = 0,
        depth: int = 1,
        prefix_caching: bool = True,
        **config: object,
    ) -> None:
        self.executor = EchoExecutor(
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            num_rows=num_rows,
            num_swap_blocks=num_swap_blocks,
            depth=depth,
        )
        self.blocks = BlockManager(
            num_blocks,
            BLOCK_SIZE,
            num_swap_blocks=num_swap_blocks,
            prefix_caching=prefix_caching,
            watermark=0.0,
        )
        settings = SchedulerConfig(**config)  # type: ignore[arg-type]
        self.scheduler = Scheduler(self.blocks, settings, num_rows=num_rows)
        self.now = 0.0
        self.num_steps = 0
        self._ids = count(step=32)

    def add(self, prompt: list[int] | int, **fields: object) -> SequenceGroup:
        """A group with this prompt, or with one of so many tokens like nobody else's."""
        seniority = next(self._ids)
        if isinstance(prompt, int):
            prompt = [(seniority // 32 + 1) % 256] * prompt
        group = make_group(seniority, prompt, now=self.now, **fields)  # type: ignore[arg-type]
        self.scheduler.add(group)
        return group

    def plan(self) -> StepPlan:
        plan = self.scheduler.plan(self.now)
        assert plan is not None, "nothing to plan"
        self.scheduler.check()
        self.executor.submit(plan)
        return plan

    def commit(self) -> list[Progress]:
        progress = self.scheduler.commit(self.executor.collect())
        for item in progress:
            seq = item.seq
            if not seq.is_finished and seq.num_tokens == seq.num_tokens_max:
                self.scheduler.finish(seq, FinishReason.LENGTH, None)
        self.scheduler.check()
        self.num_steps += 1
        return progress

    def step(self) -> StepPlan:
        plan = self.plan()
        self.commit()
        return plan

    def drain(self, steps_max: int = 2000) -> None:
        for _ in range(steps_max):
            if not self.scheduler.has_groups:
                return
            self.step()
        raise AssertionError(f"not idle after {steps_max} steps")
