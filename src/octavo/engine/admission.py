# SPDX-License-Identifier: Apache-2.0
"""The one gate: a prompt and its parameters become a ``Request``, or are refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from octavo.types.errors import InvalidRequest, PromptTooLong
from octavo.types.ports import Tokenizer
from octavo.types.request import Request
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import RowSampling


class PromptDict(TypedDict, total=False):
    """Text, ids, or both; ids win, and the text is only reported back."""

    prompt: str
    prompt_token_ids: list[int]


Prompt = str | Sequence[int] | PromptDict


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """max_model_len: longest prompt plus answer. num_slots: tokens that an empty KV pool holds."""

    max_model_len: int
    num_slots: int

    @property
    def num_tokens_max(self) -> int:
        return min(self.max_model_len, self.num_slots)


class Admission:
    """Pure and thread-safe: run it anywhere but on the scheduler's thread.

    What passes can always finish: it fits into the model's context and, alone, into the KV pool.
    What can never fit is refused at once and with the numbers, instead of waiting for ever.
    """

    def __init__(self, tokenizer: Tokenizer, limits: AdmissionLimits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits

    @property
    def limits(self) -> AdmissionLimits:
        return self._limits

    def admit(
        self, prompt: Prompt, params: SamplingParams, *, request_id: str, priority: int = 0
    ) -> Request:
        """Tokenise, validate, clip ``max_tokens`` to what fits.

        Raises ``InvalidRequest`` naming the field, or ``PromptTooLong``.
        """
        text, token_ids = self._tokenise(prompt)
        self._check_prompt(token_ids)
        self._check_params(params)
        room = self._limits.num_tokens_max - len(token_ids)
        eos_token_id, stop_token_ids = self._stop_ids(params)
        return Request(
            request_id=request_id,
            prompt=text,
            prompt_token_ids=token_ids,
            params=params,
            max_tokens=room if params.max_tokens is None else min(params.max_tokens, room),
            eos_token_id=eos_token_id,
            stop_token_ids=stop_token_ids,
            priority=priority,
        )

    def _tokenise(self, prompt: Prompt) -> tuple[str | None, tuple[int, ...]]:
        if isinstance(prompt, str):
            return prompt, tuple(self._tokenizer.encode(prompt))
        if not isinstance(prompt, dict):
            return None, self._as_ids(prompt)
        text = prompt.get("prompt")
        if text is not None and not isinstance(text, str):
            raise InvalidRequest("prompt must be a string", param="prompt")
        if "prompt_token_ids" in prompt:
            return text, self._as_ids(prompt["prompt_token_ids"])
        if text is None:
            raise InvalidRequest("a prompt needs prompt or prompt_token_ids", param="prompt")
        return text, tuple(self._tokenizer.encode(text))

    def _as_ids(self, value: object) -> tuple[int, ...]:
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | str):
            if all(type(token_id) is int for token_id in value):
                return tuple(value)
        raise InvalidRequest("a prompt is text or a sequence of token ids", param="prompt")

    def _check_prompt(self, token_ids: tuple[int, ...]) -> None:
        if not token_ids:
            raise InvalidRequest("the prompt is empty: it has no tokens", param="prompt")
        vocab_size = self._tokenizer.vocab_size
        for token_id in (min(token_ids), max(token_ids)):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequest(
                    f"token id {token_id} is outside the vocabulary of {vocab_size}", param="prompt"
                )
        num_tokens, limits = len(token_ids), self._limits
        if num_tokens >= limits.max_model_len:
            raise PromptTooLong(
                f"the prompt has {num_tokens} tokens; with one token of answer at most"
                f" {limits.max_model_len} fit the model's context (max_model_len)",
                param="prompt",
            )
        if num_tokens >= limits.num_slots:
            raise PromptTooLong(
                f"the prompt has {num_tokens} tokens; with one token of answer at most"
                f" {limits.num_slots} fit the KV cache",
                param="prompt",
            )

    def _check_params(self, params: SamplingParams) -> None:
        if params.n > 1:
            raise InvalidRequest(f"n must be 1 in this version, got {params.n}", param="n")
        vocab_size = self._tokenizer.vocab_size
        for token_id in params.stop_token_ids:
            if token_id >= vocab_size:
                raise InvalidRequest(
                    f"stop token id {token_id} is outside the vocabulary of {vocab_size}",
                    param="stop_token_ids",
                )

    def _stop_ids(self, params: SamplingParams) -> tuple[int | None, frozenset[int]]:
        """The id that ends silently and the ids that end by name. Asking for an id makes it named
        only where it is not the silent one."""
        own = frozenset(params.stop_token_ids)
        if params.ignore_eos:
            return None, own
        eos_token_id = self._tokenizer.eos_token_id
        return eos_token_id, (own | self._tokenizer.stop_token_ids) - {eos_token_id}


def row_sampling(request: Request, *, seed: int, sample_idx: int = 0) -> RowSampling:
    """Sampler settings of one sample. One top-k serves answer and prompt; each takes its share."""
    params = request.params
    wanted = [k for k in (params.logprobs, params.prompt_logprobs) if k is not None]
    banned = set(request.stop_token_ids) if params.min_tokens else set()
    if params.min_tokens and request.eos_token_id is not None:
        banned.add(request.eos_token_id)
    return RowSampling(
        temperature=0.0 if params.is_greedy else params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        seed=seed,
        sample_idx=sample_idx,
        num_logprobs=max(wanted, default=None),
        banned_until=len(request.prompt_token_ids) + params.min_tokens if banned else 0,
        banned_ids=tuple(sorted(banned)),
    )
