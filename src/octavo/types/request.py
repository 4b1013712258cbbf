# SPDX-License-Identifier: Apache-2.0
"""A request that has passed admission: complete, in range, and small enough to run alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest
from octavo.types.ports import Grammar
from octavo.types.sampling_params import SamplingParams

PRIORITY_MAX = 2**63 - 1
NAME_CHARS_MAX = 1024  # of a user or a salt: both are kept and hashed for every request


class ServiceClass(Enum):
    """How urgent a request is, beside its priority."""

    INTERACTIVE = "interactive"  # someone reads along
    STANDARD = "standard"
    BATCH = "batch"  # nobody waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a request stands among the others; a bad value raises ``InvalidRequest`` that names it.

    priority       64 bits, lower is more urgent; only the policy "priority" looks at it, and the
                   others refuse any but 0
    service_class  or its name; comes before any policy
    user           whom the request counts against under the policy "fair", up to 1024 characters
    cache_salt     prompts share cached blocks only under the same salt, up to 1024 characters
    """

    priority: int = 0
    service_class: ServiceClass = ServiceClass.STANDARD
    user: str = ""
    cache_salt: str = ""

    def __post_init__(self) -> None:
        priority: object = self.priority
        if type(priority) is not int or not -PRIORITY_MAX - 1 <= priority <= PRIORITY_MAX:
            raise InvalidRequest("priority must be an integer of 64 bits", param="priority")
        try:
            object.__setattr__(self, "service_class", ServiceClass(self.service_class))
        except ValueError:
            names = ", ".join(one.value for one in ServiceClass)
            message = f"service_class must be one of {names}; got {str(self.service_class)[:60]!r}"
            raise InvalidRequest(message, param="service_class") from None
        for name in ("user", "cache_salt"):
            value: object = getattr(self, name)
            if not isinstance(value, str) or len(value) > NAME_CHARS_MAX:
                message = f"{name} must be a string of at most {NAME_CHARS_MAX} characters"
                raise InvalidRequest(message, param=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Immutable, so any thread may hold it. Made by ``engine.admission.Admission`` and nobody else.

    prompt             the text, when the caller gave text
    prompt_token_ids   at least one id, all inside the vocabulary
    max_tokens         params.max_tokens, clipped to what the model's context and an empty pool hold
    eos_token_id       ends the answer without a stop reason; None under ignore_eos
    stop_token_ids     end the answer with the id as stop reason: the caller's and the model's own
    bad_word_ids       sequences of ids that the answer may not have
    priority           lower is more urgent; first-come-first-served does not look at it
    num_truncated_tokens  dropped from the prompt, as ``params.on_overflow`` asked
    service_class      who may go first, and who is preempted first
    user               whom the request counts against, where service is shared out fairly
    cache_salt         prompts share cached blocks only under the same salt
    beam               search for the likeliest answers instead of drawing some; ``params`` then say
                       how many, how long and how late
    grammar            what ``params.structured_outputs`` asks for, compiled
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
    beam: BeamSearchParams | None = None
    bad_word_ids: tuple[tuple[int, ...], ...] = ()
    grammar: Grammar | None = None

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
