# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.metrics.histogram import Histogram


def test_an_observation_falls_into_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram([1.0, 2.0])
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(value)
    snapshot = histogram.snapshot()
    assert snapshot.counts == (2, 2, 1)
    assert (snapshot.count, snapshot.sum) == (5, 7.5)


def test_a_snapshot_does_not_change() -> None:
    histogram = Histogram([1.0])
    before = histogram.snapshot()
    histogram.observe(0.0)
    assert (before.count, histogram.snapshot().count) == (0, 1)


@pytest.mark.parametrize("bounds", [[], [2.0, 1.0], [1.0, 1.0]])
def test_bounds_must_ascend(bounds: list[float]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        Histogram(bounds)
