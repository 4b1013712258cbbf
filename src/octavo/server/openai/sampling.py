# SPDX-License-Identifier: Apache-2.0
"""From a request body to ``SamplingParams``; and a plain no to what octavo cannot do yet.

A field that changes the answer is honoured or refused, never dropped: a client that asked for JSON
and got prose without a word has been lied to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from octavo.server.errors import shown
from octavo.server.openai import beam_search
from octavo.server.openai.schemas import ChatRequest, CompletionRequest, GenerationRequest
from octavo.server.openai.structured import given_form, structured_outputs
from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import OutputKind, SamplingParams

logger = logging.getLogger(__name__)

COMPLETION_MAX_TOKENS = 16  # OpenAI's default for /v1/completions
FIELDS_WARNED_MAX = 256  # names come from clients: what is remembered about them is bounded

# Known and without effect on the text, whatever they hold.
HARMLESS = frozenset(
    "guided_decoding_backend metadata parallel_tool_calls prompt_cache_key "
    "prompt_cache_retention request_id "
    "safety_identifier session_id spaces_between_special_tokens store".split()
)

# Fields that octavo does not implement, with the values that ask for nothing (beside null).
UNSUPPORTED: dict[str, Callable[[object], bool]] = {
    "audio": lambda value: False,
    "chat_template": lambda value: False,
    "chat_template_kwargs": lambda value: value == {},
    "closes_in_time": lambda value: value is False,
    "continue_final_message": lambda value: value is False,
    "detokenize": lambda value: value is True,
    "disable_any_whitespace": lambda value: value is False,
    "documents": lambda value: value == [],
    "function_call": lambda value: value == "none",
    "functions": lambda value: value == [],
    "grammar": lambda value: value == "",
    "guided_whitespace_pattern": lambda value: False,
    "json_schema": lambda value: False,
    "keep_special_ids": lambda value: value == [],
    "kv_transfer_params": lambda value: False,
    "logits_processors": lambda value: value == [],
    "modalities": lambda value: value == ["text"],
    "n_predict": lambda value: False,
    "prediction": lambda value: False,
    "prompt_embeds": lambda value: False,
    "reasoning_effort": lambda value: value == "none",
    "return_token_ids": lambda value: value is False,
    "return_tokens_as_token_ids": lambda value: value is False,
    "suffix": lambda value: value == "",
    "thinking_token_budget": lambda value: False,
    "tool_choice": lambda value: value in ("none", "auto"),
    "tools": lambda value: value == [],
    "truncate_prompt_tokens": lambda value: False,
    "verbosity": lambda value: value == "medium",
    "web_search_options": lambda value: False,
}

# What to use in the place of some of them.
OBSOLETE = {
    "closes_in_time": "structured_outputs.closes_in_time",
    "disable_any_whitespace": "structured_outputs.disable_any_whitespace",
    "functions": "tools",
    "function_call": "tool_choice",
    "grammar": "guided_grammar",
    "guided_whitespace_pattern": "structured_outputs.disable_any_whitespace",
    "json_schema": "response_format",
    "n_predict": "max_tokens",
    "truncate_prompt_tokens": "on_overflow",
}


class UnknownFields:
    """Logs each field name that octavo does not know once. Thread-safe."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def warn_once(self, name: str) -> None:
        with self._lock:
            if name in self._seen or len(self._seen) >= FIELDS_WARNED_MAX:
                return
            self._seen.add(name)
        logger.warning("ignored a request field that octavo does not know: %s", shown(name))


def refuse_unsupported(request: GenerationRequest, unknown: UnknownFields) -> None:
    """Raise ``InvalidRequest`` for a field that would change the answer and that octavo lacks.

    Fields that nobody has heard of are ignored, and ``unknown`` says so in the log.
    """
    for name, value in (request.model_extra or {}).items():
        if name in HARMLESS or value is None:
            continue
        is_idle = UNSUPPORTED.get(name)
        if is_idle is None:
            unknown.warn_once(name)
        elif not is_idle(value) and name in OBSOLETE:
            raise InvalidRequest(f"{name} is not supported; use {OBSOLETE[name]}", param=name)
        elif not is_idle(value):
            raise InvalidRequest(
                f"{name} is not supported yet, got {shown(value)}; leave it out", param=name
            )


def completion_params(request: CompletionRequest) -> SamplingParams:
    """Raises ``InvalidRequest``. A request that only echoes costs one token, which nobody sees: the
    engine always generates.
    """
    max_tokens = COMPLETION_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    if request.only_echoes:
        max_tokens = 1
    params = _params(request, max_tokens=max_tokens, logprobs=request.logprobs)
    if request.echo and params.structured_outputs is not None:
        name = given_form(request)
        raise InvalidRequest(
            f"echo cannot be combined with {name}: the prompt has another form", param="echo"
        )
    if not request.echo or request.logprobs is None:
        return params
    return params.clone(prompt_logprobs=max(request.logprobs, params.prompt_logprobs or 0))


def chat_params(request: ChatRequest) -> SamplingParams:
    """Raises ``InvalidRequest``, naming the field as this endpoint spells it."""
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    both = (request.max_completion_tokens, request.max_tokens)
    if None not in both and both[0] != both[1]:
        raise InvalidRequest(
            f"max_completion_tokens ({both[0]}) and max_tokens ({both[1]}) disagree; give one",
            param="max_completion_tokens",
        )
    max_tokens = both[1] if both[0] is None else both[0]
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    with spelt_as(chat_names(request)):
        return _params(request, max_tokens=max_tokens, logprobs=logprobs)


def chat_names(request: ChatRequest) -> dict[str, str]:
    """What this request calls some fields of ``SamplingParams``."""
    names = {"logprobs": "top_logprobs", **beam_search.own_names(request)}
    if request.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    return names


def _params(
    request: GenerationRequest, *, max_tokens: int | None, logprobs: int | None
) -> SamplingParams:
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest("stream_options needs stream to be true", param="stream_options")
    beam_search.check(request)
    if request.prompt_logprobs is not None and request.stream:
        raise InvalidRequest("prompt_logprobs needs stream to be false", param="prompt_logprobs")
    given = {
        name: value
        for name in (
            "n",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "min_tokens",
            "include_stop_str_in_output",
            "ignore_eos",
            "skip_special_tokens",
            "best_of",
            "on_overflow",
            "timeout_s",
            "queue_timeout_s",
            "ttft_timeout_s",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
            "bad_words",
            "allowed_token_ids",
            "typical_p",
            "top_n_sigma",
            "logprobs_mode",
            "prompt_logprobs",
        )
        if (value := getattr(request, name)) is not None
    }
    if request.use_beam_search:
        given.pop("temperature", None)  # it would refuse several answers to be greedy
    return SamplingParams(
        **given,
        max_tokens=max_tokens,
        logprobs=logprobs,
        stop=_stop(request.stop),
        stop_token_ids=tuple(request.stop_token_ids or ()),
        structured_outputs=structured_outputs(request),
        output_kind=OutputKind.DELTA if request.stream else OutputKind.FINAL_ONLY,
    )


def _stop(value: object) -> tuple[str, ...]:
    match value:
        case None:
            return ()
        case str():
            return (value,)
        case list() if all(isinstance(item, str) for item in value):
            return tuple(value)
    raise InvalidRequest(
        f"stop must be a string or an array of strings, got {shown(value)}", param="stop"
    )


@contextmanager
def spelt_as(names: Mapping[str, str]) -> Iterator[None]:
    """Refusals from inside in the words of the endpoint, whose fields have other names."""
    try:
        yield
    except InvalidRequest as error:
        new = names.get(error.param or "")
        if new is None:
            raise
        raise type(error)(str(error).replace(str(error.param), new), param=new) from None
