# SPDX-License-Identifier: Apache-2.0
"""When each request is due, in seconds after the first."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import accumulate

from octavo.types.errors import InvalidConfig

BURSTINESS_MIN = 1e-3


def arrival_times(
    count: int, request_rate: float, rng: random.Random, *, burstiness: float = 1.0
) -> list[float]:
    """``request_rate`` requests per second on average; ``inf`` is all at once.

    The gaps are drawn from a gamma distribution of that mean and the shape ``burstiness``: 1 is a
    Poisson process, below 1 comes in bursts, above 1 more evenly. Raises ``InvalidConfig``.
    """
    if not request_rate > 0:
        raise InvalidConfig(f"--request-rate must be above 0, or inf; got {request_rate:g}")
    if not BURSTINESS_MIN <= burstiness < math.inf:
        raise InvalidConfig(
            f"--burstiness must be a number from {BURSTINESS_MIN:g} on; got {burstiness:g}"
        )
    if math.isinf(request_rate):
        return [0.0] * count
    scale_s = 1 / (request_rate * burstiness)
    gaps = (rng.gammavariate(burstiness, scale_s) for _ in range(count - 1))
    return list(accumulate(gaps, initial=0.0))[:count]


def replayed_times(at_s: Sequence[float | None], time_scale: float) -> list[float]:
    """The times of a trace, counted from its first, ``time_scale`` times as slow.

    Raises ``InvalidConfig`` if the data set has no times.
    """
    times = [time for time in at_s if time is not None]
    if len(times) != len(at_s):
        raise InvalidConfig("--request-rate trace needs a data set with times: azure or mooncake")
    if not 0 < time_scale < math.inf:
        raise InvalidConfig(f"--time-scale must be above 0; got {time_scale:g}")
    return [(time - min(times)) * time_scale for time in times]
