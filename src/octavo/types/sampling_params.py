# SPDX-License-Identifier: Apache-2.0
"""How to turn logits into tokens, with vLLM's field names, defaults and ranges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from octavo.types.errors import InvalidRequest
from octavo.types.structured_outputs import StructuredOutputs

GREEDY_EPSILON = 1e-5  # a temperature below this is greedy, as in vLLM
LOGPROBS_MAX = 20
STOP_STRINGS_MAX = 16
SEED_MAX = 2**63 - 1
SAMPLES_MAX = 16384
TIMEOUT_MAX_S = 1e6  # eleven days; a longer wait is a slip of the unit
SHOWN_MAX = 60  # characters of a refused value that a message repeats


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
    temperature         >= 0; below 1e-5 means greedy
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
    structured_outputs  None, or the form that the text must have
    on_overflow         a prompt that is too long is refused, or cut as this says
    timeout_s           seconds from arrival to the last token; the request then ends by "timeout"
    queue_timeout_s     seconds from arrival to the first step
    ttft_timeout_s      seconds from arrival to the first token
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
    structured_outputs: StructuredOutputs | None = None
    keep_special_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _normalise(self)
        _check_numbers(self)
        _check_samples(self)
        _check_stops(self)
        _check_switches(self)

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
    for name in ("stop", "stop_token_ids", "keep_special_ids"):
        value: object = getattr(params, name)
        if value is None:
            put(params, name, ())
        elif isinstance(value, str):
            put(params, name, (value,))
        elif isinstance(value, list):
            put(params, name, tuple(value))
        elif not isinstance(value, tuple):
            raise InvalidRequest(f"{name} must be a list, got {_shown(value)}", param=name)
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
    _number(params, "temperature", 0.0, 2.0)
    _number(params, "top_p", 0.0, 1.0, low_open=True)
    _number(params, "min_p", 0.0, 1.0)
    _integer(params, "top_k", 0, 2**31 - 1)
    _integer(params, "min_tokens", 0, 2**31 - 1)
    if params.max_tokens is not None:
        _integer(params, "max_tokens", 1, 2**31 - 1)
        if params.min_tokens > params.max_tokens:
            raise InvalidRequest(
                f"min_tokens ({params.min_tokens}) is above max_tokens ({params.max_tokens})",
                param="min_tokens",
            )
    if params.seed is not None:
        _integer(params, "seed", 0, SEED_MAX)
    for name in ("logprobs", "prompt_logprobs"):
        if getattr(params, name) is not None:
            _integer(params, name, 0, LOGPROBS_MAX)
    for name in ("timeout_s", "queue_timeout_s", "ttft_timeout_s"):
        if getattr(params, name) is not None:
            _number(params, name, 0.0, TIMEOUT_MAX_S, low_open=True)


def _check_samples(params: SamplingParams) -> None:
    _integer(params, "n", 1, SAMPLES_MAX)
    if params.best_of is not None:
        _integer(params, "best_of", 1, SAMPLES_MAX)
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
    for name in ("stop_token_ids", "keep_special_ids"):
        if any(type(token) is not int or token < 0 for token in getattr(params, name)):
            raise InvalidRequest(f"{name} must hold token ids >= 0", param=name)


def _check_switches(params: SamplingParams) -> None:
    """A string is true whatever it says, so only a real boolean can be meant."""
    for name in ("include_stop_str_in_output", "ignore_eos", "detokenize", "skip_special_tokens"):
        value: object = getattr(params, name)
        if not isinstance(value, bool):
            raise InvalidRequest(f"{name} must be a boolean, got {_shown(value)}", param=name)
    if not isinstance(params.output_kind, OutputKind):
        raise InvalidRequest("output_kind must be an OutputKind", param="output_kind")


def _number(
    params: SamplingParams, name: str, low: float, high: float, *, low_open: bool = False
) -> None:
    value = getattr(params, name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # NaN is on neither side
        raise InvalidRequest(f"{name} must be in [{low}, {high}], got {_shown(value)}", param=name)
    if low_open and value == low:
        raise InvalidRequest(f"{name} must be above {low}, got {value!r}", param=name)


def _integer(params: SamplingParams, name: str, low: int, high: int) -> None:
    value = getattr(params, name)
    if type(value) is not int or not low <= value <= high:
        raise InvalidRequest(f"{name} must be an integer >= {low}, got {_shown(value)}", param=name)


def _shown(value: object) -> str:
    """Short. An int beyond 4300 digits has no repr at all."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a huge integer"
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
