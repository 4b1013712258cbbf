# SPDX-License-Identifier: Apache-2.0
"""What the server counts beside its engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo.server.loop_lag import LoopLag


class ServerMetrics(Collector):
    """Answers by status and the delay of the event loop. Written on the event loop alone."""

    def __init__(self) -> None:
        self.loop_lag = LoopLag()
        self._answers: Counter[int] = Counter()

    def count(self, status: int) -> None:
        """An answer has ended; 0 is a request that was cut off before."""
        self._answers[status] += 1

    def collect(self) -> Iterator[Metric]:
        text = "Largest delay of the event loop in the last 15 to 30 seconds."
        lag = GaugeMetricFamily("octavo:event_loop_lag_seconds", text)
        lag.add_metric([], self.loop_lag.seconds)
        yield lag
        text = "Answers by HTTP status; 499 is a client that left before there was one."
        answers = CounterMetricFamily("octavo:http_responses", text, labels=["status"])
        for status, count in sorted(self._answers.copy().items()):
            answers.add_metric([str(status)], count)
        yield answers
