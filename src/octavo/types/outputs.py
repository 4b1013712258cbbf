# SPDX-License-Identifier: Apache-2.0
"""What a caller receives, with vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class FinishReason(Enum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"
    TIMEOUT = "timeout"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Logprob:
    """``rank`` 1 is the likeliest token. ``decoded_token`` is the token's own text."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Where the time of a request went, in seconds; they add up to its stay in the engine.

    queue    before its first step
    prefill  running, before its first token
    decode   running, after that
    swapped  moved out of the KV cache
    stalled  preempted, waiting to compute its tokens again
    """

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    swapped_s: float = 0.0
    stalled_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """Times in seconds on the engine's monotonic clock; None where the moment never came."""

    arrival_time: float
    first_scheduled_time: float | None = None
    first_token_time: float | None = None
    finished_time: float | None = None
    num_preemptions: int = 0
    timeline: Timeline | None = None


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One sample of a request. Text and ids are cumulative or new only, as ``output_kind`` says.

    ``score`` ranks the answers of a beam search; None elsewhere.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    cumulative_logprob: float | None = None
    logprobs: tuple[dict[int, Logprob], ...] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    score: float | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The state of a request after a step that gave it something new, or ended it.

    ``num_output_tokens`` counts every generated token of every sample, whatever ``output_kind`` is:
    usage figures come from here, and with ``best_of`` the samples not given are in it too.
    ``num_cached_tokens`` of the prompt were found in the cache; ``num_truncated_tokens`` were cut
    from it. ``error`` explains a finish_reason of ``error``.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    finished: bool
    prompt_logprobs: tuple[dict[int, Logprob] | None, ...] | None = None
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    num_truncated_tokens: int = 0
    metrics: RequestMetrics | None = None
    error: str | None = field(default=None)
