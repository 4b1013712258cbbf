# SPDX-License-Identifier: Apache-2.0
"""The one gate: a prompt and its parameters become a ``Request``, or are refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypedDict

from octavo.engine.overflow import AdmissionLimits, truncate
from octavo.engine.token_rules import bad_word_ids, check_some_token_is_left, check_token_ids
from octavo.grammar.compiler import GrammarCompiler
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest, PromptTooLong
from octavo.types.ports import Grammar, Tokenizer
from octavo.types.request import Request, Standing
from octavo.types.sampling_params import OnOverflow, SamplingParams
from octavo.types.step import RowSampling


class PromptDict(TypedDict, total=False):
    """Text, ids, or both; ids win, and the text is only reported back. ``cache_salt`` is that of
    ``Standing``, which it goes before."""

    prompt: str
    prompt_token_ids: list[int]
    cache_salt: str


Prompt = str | Sequence[int] | PromptDict

ORDINARY = Standing()


class Admission:
    """Pure and thread-safe: run it anywhere but on the scheduler's thread.

    What passes can always finish: it fits into the model's context and, alone, into the KV pool.
    What can never fit is refused at once and with the numbers, instead of waiting for ever.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: AdmissionLimits,
        grammars: GrammarCompiler | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self.grammars = grammars or GrammarCompiler(tokenizer)

    @property
    def limits(self) -> AdmissionLimits:
        return self._limits

    def admit(
        self,
        prompt: Prompt,
        params: SamplingParams | BeamSearchParams,
        *,
        request_id: str,
        standing: Standing = ORDINARY,
        clips_max_tokens: bool = True,
    ) -> Request:
        """Tokenise, validate, cut a prompt that is too long if asked to, clip ``max_tokens``,
        compile the grammar.

        A beam search takes as much memory as so many samples would, or less, and is admitted as
        such. Without ``clips_max_tokens``, a ``max_tokens`` that does not fit beside the prompt is
        refused too, unless ``on_overflow`` asks for cuts.
        Raises ``InvalidRequest`` naming the field, ``PromptTooLong``, or ``EngineOverloaded`` when
        too many grammars are being compiled.
        """
        if isinstance(params, BeamSearchParams):
            return self._admit_beam_search(
                prompt,
                params,
                request_id=request_id,
                standing=standing,
                clips_max_tokens=clips_max_tokens,
            )
        text, whole = self._tokenise(prompt)
        self._check_ids(whole)
        self._check_params(params)
        if isinstance(prompt, dict) and "cache_salt" in prompt:
            standing = replace(standing, cache_salt=prompt["cache_salt"])
        self._check_standing(standing)
        token_ids = self._fitting(whole, params)
        room = self._limits.answer_room(len(token_ids), params.num_samples)
        if not clips_max_tokens:
            self._check_answer_fits(params, len(token_ids), room)
        max_tokens = room if params.max_tokens is None else min(params.max_tokens, room)
        eos_token_id, stop_token_ids = self._stop_ids(params)
        own_eos = () if eos_token_id is None else (eos_token_id,)
        request = Request(
            request_id=request_id,
            prompt=text,
            prompt_token_ids=token_ids,
            params=params,
            max_tokens=max_tokens,
            eos_token_id=eos_token_id,
            stop_token_ids=stop_token_ids,
            priority=standing.priority,
            bad_word_ids=bad_word_ids(params.bad_words, self._tokenizer),
            num_truncated_tokens=len(whole) - len(token_ids),
            service_class=standing.service_class,
            user=standing.user,
            cache_salt=standing.cache_salt,
            grammar=self._grammar(params, stop_token_ids.union(own_eos), max_tokens),
        )
        check_some_token_is_left(request, self._tokenizer.vocab_size)
        return request

    def _grammar(
        self, params: SamplingParams, stop_ids: frozenset[int], max_tokens: int
    ) -> Grammar | None:
        wish = params.structured_outputs
        if wish is None:
            return None
        return self.grammars.compile(wish, stop_ids=stop_ids, num_tokens=max_tokens)

    def _admit_beam_search(
        self,
        prompt: Prompt,
        params: BeamSearchParams,
        *,
        request_id: str,
        standing: Standing,
        clips_max_tokens: bool,
    ) -> Request:
        try:
            request = self.admit(
                prompt,
                params.as_samples,
                request_id=request_id,
                standing=standing,
                clips_max_tokens=clips_max_tokens,
            )
        except InvalidRequest as error:
            if error.param == "best_of" and not isinstance(error, PromptTooLong):
                message = str(error).replace("best_of must", "beam_width must", 1)
                raise InvalidRequest(message, param="beam_width") from None
            raise
        return replace(request, beam=params)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids. Raises ``PromptTooLong`` at once for what could not fit however it is cut.

        A tokenizer takes some 300 bytes for each byte of text: a few megabytes, a few at a time,
        would take all of the machine's memory on the way to a refusal.
        """
        limit = self._limits.max_model_len
        num_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        # Most texts have fewer bytes than the model takes tokens; the vocabulary is not asked then.
        num_tokens_min = num_bytes // self._token_bytes_max if num_bytes > limit else 0
        if num_tokens_min > limit:
            raise PromptTooLong(
                f"the prompt has more than {num_tokens_min} tokens; with one token of answer at"
                f" most {limit} fit the model's context (max_model_len)",
                param="prompt",
            )
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    @cached_property
    def _token_bytes_max(self) -> int:
        """Of the longest token. Walks the vocabulary once."""
        ids = range(self._tokenizer.vocab_size)
        return max(1, *(len(self._tokenizer.token_bytes(token_id)) for token_id in ids))

    def _tokenise(self, prompt: Prompt) -> tuple[str | None, tuple[int, ...]]:
        if isinstance(prompt, str):
            return prompt, tuple(self.encode(prompt))
        if not isinstance(prompt, dict):
            return None, self._as_ids(prompt)
        text = prompt.get("prompt")
        if text is not None and not isinstance(text, str):
            raise InvalidRequest("prompt must be a string", param="prompt")
        if "prompt_token_ids" in prompt:
            return text, self._as_ids(prompt["prompt_token_ids"])
        if text is None:
            raise InvalidRequest("a prompt needs prompt or prompt_token_ids", param="prompt")
        return text, tuple(self.encode(text))

    def _as_ids(self, value: object) -> tuple[int, ...]:
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | str):
            if all(type(token_id) is int for token_id in value):
                return tuple(value)
        raise InvalidRequest("a prompt is text or a sequence of token ids", param="prompt")

    def _check_ids(self, token_ids: tuple[int, ...]) -> None:
        if not token_ids:
            raise InvalidRequest("the prompt is empty: it has no tokens", param="prompt")
        vocab_size = self._tokenizer.vocab_size
        for token_id in (min(token_ids), max(token_ids)):
            if not 0 <= token_id < vocab_size:
                raise InvalidRequest(
                    f"token id {token_id} is outside the vocabulary of {vocab_size}", param="prompt"
                )

    def _fitting(self, token_ids: tuple[int, ...], params: SamplingParams) -> tuple[int, ...]:
        """The prompt, or what ``on_overflow`` leaves of it. Raises ``PromptTooLong``."""
        num_tokens, limits, num_samples = len(token_ids), self._limits, params.num_samples
        if limits.answer_room(num_tokens, num_samples) >= 1:
            return token_ids
        if params.on_overflow is not OnOverflow.ERROR:
            length = limits.cut_length(params.max_tokens, num_samples)
            if length >= 1:
                bos_token_id = self._tokenizer.bos_token_id
                return truncate(token_ids, length, params.on_overflow, bos_token_id=bos_token_id)
        if num_tokens >= limits.max_model_len:
            raise PromptTooLong(
                f"the prompt has {num_tokens} tokens; with one token of answer at most"
                f" {limits.max_model_len} fit the model's context (max_model_len)",
                param="prompt",
            )
        if num_samples == 1 or num_tokens >= limits.num_slots:
            raise PromptTooLong(
                f"the prompt has {num_tokens} tokens; with one token of answer at most"
                f" {limits.num_slots} fit the KV cache",
                param="prompt",
            )
        num_shared = num_tokens // limits.block_size
        raise PromptTooLong(
            f"the prompt has {num_tokens} tokens and {num_samples} samples; that takes {num_shared}"
            f" shared blocks and at least {num_samples} more, and the KV cache has"
            f" {limits.num_blocks} blocks of {limits.block_size} tokens",
            param="n",
        )

    def _check_params(self, params: SamplingParams) -> None:
        num_samples, most = params.num_samples, self._limits.num_samples_max
        if num_samples > most:
            name = "n" if params.best_of is None else "best_of"
            raise InvalidRequest(
                f"{name} must be at most {most}, the sequences that may run at once"
                f" (max_num_seqs); got {num_samples}",
                param=name,
            )
        check_token_ids(params, self._tokenizer.vocab_size)

    def _check_standing(self, standing: Standing) -> None:
        if standing.priority != 0 and not self._limits.has_priorities:
            raise InvalidRequest(
                "priority must be 0 unless scheduling_policy is priority or weighted;"
                f" got {standing.priority}",
                param="priority",
            )

    def _check_answer_fits(self, params: SamplingParams, num_prompt: int, room: int) -> None:
        wanted = params.max_tokens
        if wanted is None or wanted <= room or params.on_overflow is not OnOverflow.ERROR:
            return
        each = "" if params.num_samples == 1 else f" for each of {params.num_samples} samples"
        raise PromptTooLong(
            f"max_tokens ({wanted}) is above the {room} tokens that are left{each} beside the"
            f" prompt of {num_prompt}; the model's context and the KV cache hold"
            f" {self._limits.num_tokens_max}",
            param="max_tokens",
        )

    def _stop_ids(self, params: SamplingParams) -> tuple[int | None, frozenset[int]]:
        """The id that ends silently and the ids that end by name. Asking for an id makes it named
        only where it is not the silent one."""
        own = frozenset(params.stop_token_ids)
        eos_token_id = None if params.ignore_eos else self._tokenizer.eos_token_id
        ends = own if params.ignore_eos else own | self._tokenizer.stop_token_ids
        num_ends, vocab_size = len(ends | {eos_token_id} - {None}), self._tokenizer.vocab_size
        if params.min_tokens and num_ends == vocab_size:
            raise InvalidRequest(
                f"stop_token_ids leave no token of {vocab_size} that could come before min_tokens"
                f" ({params.min_tokens})",
                param="stop_token_ids",
            )
        return eos_token_id, ends - {eos_token_id}


def row_sampling(request: Request, *, seed: int, sample_idx: int = 0) -> RowSampling:
    """Sampler settings of one sample. One top-k serves answer and prompt; each takes its share."""
    params = request.params
    picked_by = 0 if params.picks_best else None  # the sampled tokens' own logprobs rank samples
    wanted = [k for k in (params.logprobs, params.prompt_logprobs, picked_by) if k is not None]
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
        typical_p=params.typical_p,
        top_n_sigma=params.top_n_sigma,
        repetition_penalty=params.repetition_penalty,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        logit_bias=params.logit_bias,
        allowed_ids=params.allowed_token_ids or (),
        bad_words=request.bad_word_ids,
        has_processed_logprobs=params.logprobs_mode == "processed_logprobs",
    )
