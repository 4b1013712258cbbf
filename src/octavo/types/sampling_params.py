# SPDX-License-Identifier: Apache-2.0
"""How to turn logits into tokens, with vLLM's field names, defaults and ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from octavo.types.errors import InvalidRequest
from octavo.types.param_checks import (
    as_logit_bias,
    as_tuple,
    check_above,
    check_integer,
    check_number,
    check_switch,
    shown,
)
from octavo.types.structured_outputs import StructuredOutputs

GREEDY_EPSILON = 1e-5  # a temperature below this is greedy, as in vLLM
LOGPROBS_MAX = 20
STOP_STRINGS_MAX = 16
SEED_MAX = 2**63 - 1
SAMPLES_MAX = 16384
TIMEOUT_MAX_S = 1e6  # eleven days; a longer wait is a slip of the unit
LOGIT_BIAS_MAX = 100.0  # either way, as in OpenAI's API
PENALTY_MAX = 2.0
REPETITION_PENALTY_MAX = 1e6
TOP_N_SIGMA_MAX = 1e6
BAD_WORDS_MAX = 128
LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs")


class OutputKind(Enum):
    """What each ``RequestOutput`` of a request carries."""

    CUMULATIVE = 0  # everything so far
    DELTA = 1  # what is new since the last one
    FINAL_ONLY = 2  # one output, at the end


class OnOverflow(Enum):
    """What becomes of a prompt that is too long for the model's context or for the KV cache."""

    ERROR = "error"  # refuse it, with the numbers
    TRUNCATE_LEFT = "truncate_left"  # drop the beginning; a begin-of-sequence token stays
    TRUNCATE_MIDDLE = "truncate_middle"  # keep the beginning and the end
    TRUNCATE_RIGHT = "truncate_right"  # drop the end


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Immutable; a bad value raises ``InvalidRequest`` that names the field.

    n                   samples per prompt, >= 1; above 1 they share the prompt's memory
    best_of             None, or how many samples to draw, >= n: the n likeliest are given
    temperature         [0, 2]; below 1e-5 means greedy
    top_p               (0, 1]; 1 keeps every token
    top_k               0 or -1 keeps every token
    min_p               [0, 1]; drops tokens less likely than min_p times the likeliest
    seed                None draws one; with a seed the text depends on nothing else
    max_tokens          tokens to generate, >= 1, or None: up to the model's context
    min_tokens          no end-of-sequence and no stop before this many
    stop                strings that end the text (cut off unless include_stop_str_in_output)
    stop_token_ids      ids that end the text, beside the model's own
    ignore_eos          go on past the model's end-of-sequence
    logprobs            None, or how many alternatives to report per token (0-20)
    prompt_logprobs     the same for the prompt
    detokenize          False: ids only, no text
    skip_special_tokens leave control tokens out of the text
    keep_special_ids    but not these: what reads the text looks for them
    on_overflow         a prompt that is too long is refused, or cut as this says
    timeout_s           seconds from arrival to the last token; the request then ends by "timeout"
    queue_timeout_s     seconds from arrival to the first step
    ttft_timeout_s      seconds from arrival to the first token
    presence_penalty    [-2, 2]; subtracted from the logits of ids that the answer has
    frequency_penalty   [-2, 2]; the same, for each time that it has them
    repetition_penalty  > 0; divides the logits above 0 of ids in prompt or answer, and multiplies
                        those below; 1 is off
    logit_bias          {id: number in [-100, 100]}, added to its logit
    bad_words           texts that the answer may not have, each as the tokens it is spelt with
                        alone or after a space; at most 128
    allowed_token_ids   None, or the only ids that the answer may have
    typical_p           (0, 1]; keeps the ids whose surprise is nearest to the expected one until
                        they have this probability together; 1 keeps every one
    top_n_sigma         >= 0; keeps the logits within so many standard deviations of the greatest;
                        0 or -1 keeps every one
    logprobs_mode       "raw_logprobs", of the model's distribution, or "processed_logprobs", of the
                        one that is drawn from; those of the prompt are always raw
    structured_outputs  None, or the form that the answer must have

    The order in which all of these act is in ``docs/sampling.md``.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    output_kind: OutputKind = OutputKind.CUMULATIVE
    best_of: int | None = None
    on_overflow: OnOverflow = OnOverflow.ERROR
    timeout_s: float | None = None
    queue_timeout_s: float | None = None
    ttft_timeout_s: float | None = None
    keep_special_ids: tuple[int, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()  # a dict is taken too
    bad_words: tuple[str, ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    logprobs_mode: str = "raw_logprobs"
    structured_outputs: StructuredOutputs | None = None

    def __post_init__(self) -> None:
        _normalise(self)
        _check_numbers(self)
        _check_samples(self)
        _check_stops(self)
        _check_tokens(self)
        _check_switches(self)
        _check_structured(self)

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_EPSILON

    @property
    def num_samples(self) -> int:
        """Samples to draw: ``best_of`` when it is given, else ``n``."""
        return self.n if self.best_of is None else self.best_of

    @property
    def picks_best(self) -> bool:
        """Whether more is drawn than given: then nothing can be shown before all have ended."""
        return self.num_samples > self.n

    def clone(self, **changes: object) -> SamplingParams:
        """A copy with some fields replaced, validated again."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _normalise(params: SamplingParams) -> None:
    """Accept the spellings that vLLM accepts: one stop string, lists, -1 for "off"."""
    put = object.__setattr__  # only here, before anyone else holds the object
    for name in ("stop", "stop_token_ids", "bad_words", "keep_special_ids"):
        put(params, name, as_tuple(name, getattr(params, name)))
    if params.allowed_token_ids is not None:
        ids = as_tuple("allowed_token_ids", params.allowed_token_ids)
        put(params, "allowed_token_ids", ids)
    put(params, "logit_bias", as_logit_bias(params.logit_bias, LOGIT_BIAS_MAX))
    if params.top_n_sigma == -1:
        put(params, "top_n_sigma", 0.0)
    if params.top_k == -1:
        put(params, "top_k", 0)
    if params.seed == -1:
        put(params, "seed", None)
    if isinstance(params.on_overflow, str):
        try:
            put(params, "on_overflow", OnOverflow(params.on_overflow))
        except ValueError:
            names = ", ".join(policy.value for policy in OnOverflow)
            raise InvalidRequest(
                f"on_overflow must be one of {names}; got {params.on_overflow!r}",
                param="on_overflow",
            ) from None


def _check_numbers(params: SamplingParams) -> None:
    check_number("temperature", params.temperature, 0.0, 2.0)
    check_above("top_p", params.top_p, 0.0, 1.0)
    check_number("min_p", params.min_p, 0.0, 1.0)
    check_above("typical_p", params.typical_p, 0.0, 1.0)
    check_number("top_n_sigma", params.top_n_sigma, 0.0, TOP_N_SIGMA_MAX)
    for name in ("presence_penalty", "frequency_penalty"):
        check_number(name, getattr(params, name), -PENALTY_MAX, PENALTY_MAX)
    check_above("repetition_penalty", params.repetition_penalty, 0.0, REPETITION_PENALTY_MAX)
    check_integer("top_k", params.top_k, 0, 2**31 - 1)  # -1 has become 0
    check_integer("min_tokens", params.min_tokens, 0, 2**31 - 1)
    if params.max_tokens is not None:
        check_integer("max_tokens", params.max_tokens, 1, 2**31 - 1)
        if params.min_tokens > params.max_tokens:
            raise InvalidRequest(
                f"min_tokens ({params.min_tokens}) is above max_tokens ({params.max_tokens})",
                param="min_tokens",
            )
    if params.seed is not None:
        check_integer("seed", params.seed, 0, SEED_MAX)
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(params, name) is not None:
            check_integer(name, getattr(params, name), 0, LOGPROBS_MAX)
    for name in ("timeout_s", "queue_timeout_s", "ttft_timeout_s"):
        if getattr(params, name) is not None:
            check_above(name, getattr(params, name), 0.0, TIMEOUT_MAX_S)


def _check_samples(params: SamplingParams) -> None:
    check_integer("n", params.n, 1, SAMPLES_MAX)
    if params.best_of is not None:
        check_integer("best_of", params.best_of, 1, SAMPLES_MAX)
        if params.best_of < params.n:
            raise InvalidRequest(
                f"best_of ({params.best_of}) must be at least n ({params.n})", param="best_of"
            )
    if params.num_samples > 1 and params.is_greedy:
        name = "n" if params.n > 1 else "best_of"
        raise InvalidRequest(
            f"{name} must be 1 when temperature is 0: greedy samples are all the same", param=name
        )
    if params.picks_best and params.output_kind is OutputKind.DELTA:
        raise InvalidRequest(
            f"best_of ({params.best_of}) must equal n ({params.n}) in a stream: which samples are"
            " best is known at the end",
            param="best_of",
        )


def _check_stops(params: SamplingParams) -> None:
    if len(params.stop) > STOP_STRINGS_MAX:
        raise InvalidRequest(f"stop has more than {STOP_STRINGS_MAX} strings", param="stop")
    if any(not isinstance(text, str) or not text for text in params.stop):
        raise InvalidRequest("stop must hold non-empty strings", param="stop")
    if params.stop and not params.detokenize:
        raise InvalidRequest("stop strings need detokenize=True", param="stop")
    _check_ids("stop_token_ids", params.stop_token_ids)
    _check_ids("keep_special_ids", params.keep_special_ids)


def _check_tokens(params: SamplingParams) -> None:
    if len(params.bad_words) > BAD_WORDS_MAX:
        raise InvalidRequest(f"bad_words has more than {BAD_WORDS_MAX} texts", param="bad_words")
    if any(not isinstance(text, str) or not text for text in params.bad_words):
        raise InvalidRequest("bad_words must hold non-empty strings", param="bad_words")
    if params.allowed_token_ids is None:
        return
    if not params.allowed_token_ids:
        raise InvalidRequest(
            "allowed_token_ids is empty: no token is allowed", param="allowed_token_ids"
        )
    _check_ids("allowed_token_ids", params.allowed_token_ids)


def _check_ids(name: str, ids: tuple[int, ...]) -> None:
    if any(type(token) is not int or token < 0 for token in ids):
        raise InvalidRequest(f"{name} must hold token ids >= 0", param=name)


def _check_switches(params: SamplingParams) -> None:
    for name in ("include_stop_str_in_output", "ignore_eos", "detokenize", "skip_special_tokens"):
        check_switch(name, getattr(params, name))
    if not isinstance(params.output_kind, OutputKind):
        raise InvalidRequest("output_kind must be an OutputKind", param="output_kind")
    if params.logprobs_mode not in LOGPROBS_MODES:
        raise InvalidRequest(
            f"logprobs_mode must be one of {', '.join(LOGPROBS_MODES)},"
            f" got {shown(params.logprobs_mode)}",
            param="logprobs_mode",
        )


def _check_structured(params: SamplingParams) -> None:
    wish: object = params.structured_outputs
    if wish is None:
        return
    if not isinstance(wish, StructuredOutputs):
        raise InvalidRequest(
            f"structured_outputs must be StructuredOutputs(json=...) or another form of it,"
            f" got {shown(wish)}",
            param="structured_outputs",
        )
    # A token that is put in another's place has no logprob that anybody has computed.
    if wish.closes_in_time and (params.logprobs is not None or params.picks_best):
        name = "best_of" if params.picks_best else "logprobs"
        raise InvalidRequest(
            f"{name} cannot be combined with structured_outputs.closes_in_time", param=name
        )
    # What both rules leave may be nothing, or nothing that leads to an end.
    if params.allowed_token_ids is not None:
        raise InvalidRequest(
            "allowed_token_ids cannot be combined with structured_outputs",
            param="allowed_token_ids",
        )
    if params.bad_words:
        raise InvalidRequest(
            "bad_words cannot be combined with structured_outputs", param="bad_words"
        )
