# SPDX-License-Identifier: Apache-2.0
"""What a request was, counted when it ends: how long its phases took, how much it asked and got."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from octavo.metrics.histogram import Histogram, HistogramSnapshot
from octavo.types.sequence import SequenceGroup

# Seconds, as in engine_metrics: a step of a small model, a long prefill on a slow machine.
_PHASE_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TOKEN_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_TOKEN_BOUNDS = tuple(float(2**i) for i in range(18))  # 1 to 131072: any context that a CPU reads
_COUNT_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0)

_BOUNDS = {
    "prefill_s": _PHASE_BOUNDS_S,
    "decode_s": _PHASE_BOUNDS_S,
    "inference_s": _PHASE_BOUNDS_S,
    "s_per_output_token": _TOKEN_BOUNDS_S,
    "prompt_tokens": _TOKEN_BOUNDS,
    "computed_prompt_tokens": _TOKEN_BOUNDS,
    "output_tokens": _TOKEN_BOUNDS,
    "output_tokens_max": _TOKEN_BOUNDS,
    "max_tokens": _TOKEN_BOUNDS,
    "n": _COUNT_BOUNDS,
    "preemptions": (0.0, *_COUNT_BOUNDS),
}


class RequestHistograms:
    """Histograms by name, filled by the engine's thread. A snapshot is made anew only after an end,
    which is much less often than a step.
    """

    def __init__(self) -> None:
        self._histograms = {name: Histogram(bounds) for name, bounds in _BOUNDS.items()}
        self._snapshot: Mapping[str, HistogramSnapshot] | None = None

    def ended(self, group: SequenceGroup) -> None:
        """A request ended. One without a first token has had no phases, and is left out."""
        begin, first, last = (
            group.first_scheduled_time,
            group.first_token_time,
            group.last_token_time,
        )
        if begin is None or first is None or last is None:
            return
        request = group.request
        outputs = [seq.num_outputs for seq in group.sequences] or [0]
        num_prompt = len(request.prompt_token_ids)
        values = {
            "prefill_s": first - begin,
            "decode_s": last - first,
            "inference_s": last - begin,
            "prompt_tokens": num_prompt,
            "computed_prompt_tokens": num_prompt - group.num_cached_tokens,
            "output_tokens": sum(outputs),
            "output_tokens_max": max(outputs),
            "max_tokens": request.max_tokens,
            "n": request.params.n,
            "preemptions": group.num_preemptions,
        }
        if max(outputs) > 1:
            values["s_per_output_token"] = (last - first) / (max(outputs) - 1)
        for name, value in values.items():
            self._histograms[name].observe(value)
        self._snapshot = None

    def snapshot(self) -> Mapping[str, HistogramSnapshot]:
        if self._snapshot is None:
            taken = {name: one.snapshot() for name, one in self._histograms.items()}
            self._snapshot = MappingProxyType(taken)
        return self._snapshot
