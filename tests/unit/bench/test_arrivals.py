# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import random
import statistics
from itertools import pairwise

import pytest

from octavo.bench.arrivals import arrival_times, replayed_times
from octavo.types.errors import InvalidConfig

COUNT = 20_001


def gaps(burstiness: float, rate: float = 4.0, seed: int = 1) -> list[float]:
    times = arrival_times(COUNT, rate, random.Random(seed), burstiness=burstiness)
    assert times[0] == 0
    return [after - before for before, after in pairwise(times)]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_and_the_spread_of_a_gamma_distribution(burstiness):
    """Mean 1/rate; standard deviation over mean is 1/sqrt(burstiness).

    The mean of 20,000 gaps is off by cv/sqrt(20,000), 1.4 % for the widest: 6 % is 4 sigma. The
    spread of a spread grows with the kurtosis, 3 + 6/burstiness: sigma is
    sqrt((2 + 6/burstiness) / (4 * 20,000)), 1.8 % for the widest, and 8 % is 4 sigma.
    """
    found = gaps(burstiness)
    mean = statistics.fmean(found)
    assert mean == pytest.approx(1 / 4, rel=0.06)
    assert statistics.pstdev(found) / mean == pytest.approx(burstiness**-0.5, rel=0.08)


def test_the_tolerance_notices_another_burstiness():
    found = gaps(1.25)
    assert statistics.pstdev(found) / statistics.fmean(found) != pytest.approx(1.0, rel=0.08)


def test_a_poisson_process_forgets():
    """Of 7,400 gaps beyond 1, a share of 1/e lies beyond 2; sigma is 0.0056."""
    found = gaps(1.0, rate=1.0)
    beyond = [gap for gap in found if gap > 1]
    share = sum(gap > 2 for gap in beyond) / len(beyond)
    assert share == pytest.approx(math.exp(-1), abs=0.02)


def test_a_seed_repeats_itself():
    assert gaps(0.5, seed=3) == gaps(0.5, seed=3) != gaps(0.5, seed=4)


def test_an_infinite_rate_is_all_at_once():
    assert arrival_times(3, math.inf, random.Random(1)) == [0, 0, 0]
    assert arrival_times(1, 2.0, random.Random(1)) == [0]


@pytest.mark.parametrize("rate", [0, -1, math.nan])
def test_bad_rates_are_refused(rate):
    with pytest.raises(InvalidConfig, match="--request-rate"):
        arrival_times(3, rate, random.Random(1))


@pytest.mark.parametrize("burstiness", [0, -1, math.nan, math.inf, 1e-9])
def test_bad_burstiness_is_refused(burstiness):
    with pytest.raises(InvalidConfig, match="--burstiness"):
        arrival_times(3, 1.0, random.Random(1), burstiness=burstiness)


def test_a_trace_is_replayed_from_its_first():
    assert replayed_times([5.0, 4.0, 6.5], 2.0) == [2.0, 0.0, 5.0]


def test_without_times_there_is_no_replay():
    with pytest.raises(InvalidConfig, match="azure or mooncake"):
        replayed_times([0.0, None], 1.0)
    with pytest.raises(InvalidConfig, match="--time-scale"):
        replayed_times([0.0], 0.0)
