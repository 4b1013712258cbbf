# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest

from octavo.scheduler.budget import CostModel, PrefillBudget
from octavo.scheduler.delay import DelayFactor

FIXED_S, PREFILL_S, CONTEXT_S = 4e-3, 2e-4, 1e-6


def true_cost(num_prefill: int, num_context: int) -> float:
    return FIXED_S + PREFILL_S * num_prefill + CONTEXT_S * num_context


def trained(num_steps: int = 200, noise: float = 0.0, seed: int = 0) -> CostModel:
    rng, costs = random.Random(seed), CostModel()
    for _ in range(num_steps):
        x = rng.choice([0, rng.randrange(500)]), rng.randrange(100_000)
        costs.observe(*x, true_cost(*x) * (1 + noise * rng.uniform(-1, 1)))
    return costs


def test_it_finds_the_three_costs() -> None:
    """Without noise the fit is exact but for the prior, whose weight has faded to 0.98 ** 200."""
    costs = trained()
    for x in ((0, 0), (512, 0), (0, 50_000), (300, 20_000)):
        assert costs.predict(*x) == pytest.approx(true_cost(*x), rel=1e-3)
    assert costs.error < 0.01


def test_noise_of_a_tenth_moves_a_prediction_by_less() -> None:
    for seed in range(20):
        x = (256, 50_000)
        assert trained(noise=0.1, seed=seed).predict(*x) == pytest.approx(true_cost(*x), rel=0.1)


def test_it_follows_a_machine_that_slows_down() -> None:
    rng, costs = random.Random(1), trained()
    for _ in range(200):
        x = rng.randrange(500), rng.randrange(100_000)
        costs.observe(*x, 3 * true_cost(*x))
    assert costs.predict(256, 10_000) == pytest.approx(3 * true_cost(256, 10_000), rel=0.02)


def test_a_feature_that_never_varies_does_not_blow_up() -> None:
    costs = CostModel()
    for _ in range(20_000):
        costs.observe(0, 0, FIXED_S)
    costs.observe(100, 1000, true_cost(100, 1000))
    assert 0 <= costs.predict(100, 1000) < 1.0


class TestPrefillBudget:
    def budget(self, costs: CostModel, itl_s: float | None, ttft_s: float | None = None) -> int:
        budget = PrefillBudget(costs, low=16, high=512, itl_s=itl_s, ttft_s=ttft_s)
        return budget.next(10_000, 2000, 0.1)

    def test_without_targets_a_step_is_full(self) -> None:
        assert self.budget(trained(), None) == 512

    def test_the_largest_that_meets_the_target(self) -> None:
        num_tokens = self.budget(trained(), 0.050)
        assert true_cost(num_tokens, 10_000) <= 0.0501
        assert true_cost(num_tokens + 2, 10_000) > 0.0499

    @pytest.mark.parametrize(("itl_s", "expected"), [(1e-3, 16), (10.0, 512)])
    def test_it_is_clamped(self, itl_s: float, expected: int) -> None:
        assert self.budget(trained(), itl_s) == expected

    def test_a_target_for_the_first_token_asks_for_what_it_needs(self) -> None:
        """2,000 tokens take 0.4 s; of 1.0 s, 0.1 are gone: 0.5 s for 4 ms a step make 125 steps."""
        assert self.budget(trained(), None, 1.0) == pytest.approx(2000 / 125 + 1, abs=1)
        assert self.budget(trained(), None, 0.3) == 512

    def test_a_model_that_is_wrong_is_not_believed(self) -> None:
        costs = trained()
        costs.error = 0.9
        budget = PrefillBudget(costs, low=16, high=512, itl_s=0.05, ttft_s=None)
        for _ in range(3):
            budget.observe(0.2, 100)
        assert budget.next(0, 0, 0.0) == 64
        budget.observe(0.01, 100)
        assert budget.next(0, 0, 0.0) == 80


class TestDelayFactor:
    def test_auto_delays_more_the_more_steps_carry_a_prefill(self) -> None:
        delay = DelayFactor("auto", wait_max_s=0)
        assert delay.has_passed(0.0, is_idle=False)
        for _ in range(200):
            delay.observe(0.1, has_prefill=True)
        assert delay.factor == pytest.approx(2.0, abs=0.01)
        assert not delay.has_passed(0.19, is_idle=False)
        for _ in range(200):
            delay.observe(0.0, has_prefill=False)
        assert delay.factor < 0.01
        assert delay.last_prefill_s == 0.1

    def test_nobody_waits_beyond_the_bound(self) -> None:
        hurried = DelayFactor(100.0, wait_max_s=5.0, ttft_s=1.0)
        hurried.observe(0.3, has_prefill=True)
        assert not hurried.has_passed(0.69, is_idle=False)
        assert hurried.has_passed(0.71, is_idle=False)
        delay = DelayFactor(100.0, wait_max_s=5.0)
        delay.observe(10.0, has_prefill=True)
        assert not delay.has_passed(4.9, is_idle=False)
        assert delay.has_passed(5.0, is_idle=False)
