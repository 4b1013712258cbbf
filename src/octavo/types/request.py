# SPDX-License-Identifier: Apache-2.0
"""A request that has passed admission: complete, in range, and small enough to run alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from octavo.types.sampling_params import SamplingParams


class ServiceClass(Enum):
    """How urgent a request is, beside its priority."""

    INTERACTIVE = "interactive"  # someone reads along
    STANDARD = "standard"
    BATCH = "batch"  # nobody waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Immutable, so any thread may hold it. Made by ``engine.admission.Admission`` and nobody else.

    prompt             the text, when the caller gave text
    prompt_token_ids   at least one id, all inside the vocabulary
    max_tokens         params.max_tokens, clipped to what the model's context and an empty pool hold
    eos_token_id       ends the answer without a stop reason; None under ignore_eos
    stop_token_ids     end the answer with the id as stop reason: the caller's and the model's own
    priority           lower is more urgent; first-come-first-served does not look at it
    num_truncated_tokens  dropped from the prompt, as ``params.on_overflow`` asked
    service_class      who may go first, and who is preempted first
    user               whom the request counts against, where service is shared out fairly
    cache_salt         prompts share cached blocks only under the same salt
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    max_tokens: int
    eos_token_id: int | None
    stop_token_ids: frozenset[int]
    priority: int = 0
    num_truncated_tokens: int = 0
    service_class: ServiceClass = ServiceClass.STANDARD
    user: str = ""
    cache_salt: str = ""

    @property
    def num_tokens_max(self) -> int:
        """Prompt and answer together never exceed this."""
        return len(self.prompt_token_ids) + self.max_tokens

    @property
    def num_samples(self) -> int:
        return self.params.num_samples

    @property
    def timeout_s(self) -> float | None:
        return self.params.timeout_s

    @property
    def queue_timeout_s(self) -> float | None:
        return self.params.queue_timeout_s

    @property
    def ttft_timeout_s(self) -> float | None:
        return self.params.ttft_timeout_s
