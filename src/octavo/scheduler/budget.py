# SPDX-License-Identifier: Apache-2.0
"""How long a step takes, learnt from the steps so far, and how much prefill a step may carry."""

from __future__ import annotations

Vector = tuple[float, float, float]

FORGETTING = 0.98  # a step's weight halves every 34 steps: machines get warm and neighbours come
MIN_STEPS = 8  # below it the three coefficients are not told apart


class CostModel:
    """Seconds of a step = c + a * prompt tokens + b * context tokens, all three >= 0.

    Recursive least squares with forgetting, on scaled features so that the covariance stays well
    conditioned. A plain sum of squares: O(1) a step, no arrays. A swap's cost per block is what a
    step with transfers took beyond the prediction.
    """

    SCALE: Vector = (1.0, 1e-2, 1e-4)
    VARIANCE_MAX = 1e6  # a feature that never varies would let its variance grow for ever

    def __init__(self) -> None:
        self._theta = [0.0, 0.0, 0.0]
        self._p = [[self.VARIANCE_MAX if i == j else 0.0 for j in range(3)] for i in range(3)]
        self.num_steps = 0
        self.error = 1.0  # running mean of |predicted - measured| / measured
        self.swap_s_per_block = 0.0

    @property
    def is_ready(self) -> bool:
        return self.num_steps >= MIN_STEPS and self.prefill_s_per_token > 0

    @property
    def prefill_s_per_token(self) -> float:
        return max(0.0, self._theta[1]) * self.SCALE[1]

    def predict(self, num_prefill_tokens: int, num_context_tokens: int) -> float:
        """Seconds, >= 0."""
        x = self._features(num_prefill_tokens, num_context_tokens)
        return sum(max(0.0, t) * f for t, f in zip(self._theta, x, strict=True))

    def observe(self, num_prefill_tokens: int, num_context_tokens: int, seconds: float) -> None:
        """A step without transfers took ``seconds``."""
        if seconds <= 0:
            return
        x = self._features(num_prefill_tokens, num_context_tokens)
        predicted = self.predict(num_prefill_tokens, num_context_tokens)
        self.error += 0.1 * (min(1.0, abs(predicted - seconds) / seconds) - self.error)
        px = [sum(row[j] * x[j] for j in range(3)) for row in self._p]
        gain = FORGETTING + sum(x[i] * px[i] for i in range(3))
        miss = seconds - sum(self._theta[i] * x[i] for i in range(3))
        for i in range(3):
            self._theta[i] += px[i] * miss / gain
        bounded = sum(self._p[i][i] for i in range(3)) < self.VARIANCE_MAX
        fade = FORGETTING if bounded else 1.0
        for i in range(3):
            for j in range(3):
                self._p[i][j] = (self._p[i][j] - px[i] * px[j] / gain) / fade
        self.num_steps += 1

    def observe_swap(self, num_blocks: int, seconds: float, predicted: float) -> None:
        """A step that moved ``num_blocks`` took ``seconds``; the rest of it was ``predicted``."""
        sample = max(0.0, seconds - predicted) / num_blocks
        weight = 0.2 if self.swap_s_per_block else 1.0
        self.swap_s_per_block += weight * (sample - self.swap_s_per_block)

    def prefill_within(self, seconds: float, num_context_tokens: int) -> int:
        """The most prompt tokens with which a step is predicted to end in time; may be 0."""
        per_token = self.prefill_s_per_token
        left = seconds - self.predict(0, num_context_tokens)
        return max(0, int(left / per_token)) if per_token > 0 else 0

    def _features(self, num_prefill_tokens: int, num_context_tokens: int) -> Vector:
        scale = self.SCALE
        return (1.0, num_prefill_tokens * scale[1], num_context_tokens * scale[2])


class PrefillBudget:
    """How many prompt tokens the next step may compute, between ``low`` and ``high``.

    Without targets: ``high``. With one for the time between tokens: as many as the cost model
    predicts to fit. While the model's error is above ``ERROR_MAX`` it is not believed: the budget
    then grows by ``low`` after each step in time and halves after each that was late. A target for
    the time to the first token asks for more when the oldest prompt would miss it, but never beyond
    what the running sequences' own target leaves.
    """

    ERROR_MAX = 0.25

    def __init__(
        self, costs: CostModel, *, low: int, high: int, itl_s: float | None, ttft_s: float | None
    ) -> None:
        self._costs = costs
        self._low = min(low, high)
        self._high = high
        self._itl_s = itl_s
        self._ttft_s = ttft_s
        self.current = high

    def next(self, num_context_tokens: int, num_waiting_tokens: int, oldest_wait_s: float) -> int:
        """The budget for a step whose running sequences attend to ``num_context_tokens``."""
        if self._itl_s is not None:
            if self._trusts_model:
                self.current = self._costs.prefill_within(self._itl_s, num_context_tokens)
        elif self._ttft_s is not None and self._trusts_model:
            self.current = self._for_first_token(num_waiting_tokens, oldest_wait_s)
        self.current = max(self._low, min(self._high, self.current))
        return self.current

    def observe(self, seconds: float, num_prefill_tokens: int) -> None:
        """A step took so long. Corrects the budget while the model is not to be trusted."""
        if self._itl_s is None or self._trusts_model or num_prefill_tokens == 0:
            return
        if seconds > self._itl_s:
            self.current = max(self._low, self.current // 2)
        else:
            self.current = min(self._high, self.current + self._low)

    @property
    def _trusts_model(self) -> bool:
        return self._costs.is_ready and self._costs.error <= self.ERROR_MAX

    def _for_first_token(self, num_tokens: int, waited_s: float) -> int:
        """As small as lets the waiting tokens be computed before the target: steps of ``n`` tokens
        take c + a n each, so num_tokens / n of them take num_tokens (c / n + a)."""
        if self._ttft_s is None or num_tokens == 0:
            return self._high
        left = self._ttft_s - waited_s - num_tokens * self._costs.prefill_s_per_token
        fixed = self._costs.predict(0, 0)
        return self._high if left <= 0 else int(num_tokens * fixed / left) + 1
