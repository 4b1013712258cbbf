# SPDX-License-Identifier: Apache-2.0
"""The flags of how an answer is sampled, given to commands as a group."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from octavo.cli import flags
from octavo.types.sampling_params import SamplingParams

F = TypeVar("F", bound=Callable[..., object])

_FLAGS: dict[str, tuple[Any, object]] = {  # name: annotation, default
    "max_tokens": (flags.MaxTokens, 256),
    "temperature": (flags.Temperature, 0.0),
    "top_p": (flags.TopP, 1.0),
    "top_k": (flags.TopK, 0),
    "min_p": (flags.MinP, 0.0),
    "repetition_penalty": (flags.RepetitionPenalty, 1.0),
    "presence_penalty": (flags.PresencePenalty, 0.0),
    "frequency_penalty": (flags.FrequencyPenalty, 0.0),
    "bad_words": (flags.BadWords, None),
    "seed": (flags.Seed, None),
    "stop": (flags.Stop, None),
}


def with_sampling(command: F) -> F:
    """Give a command the flags above. They come with its ``**`` arguments, from which ``taken``
    takes them. Goes above ``with_knobs``.
    """
    signature = inspect.signature(command)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _FLAGS.items()
    ]
    command.__annotations__ |= {one.name: one.annotation for one in added}
    new = signature.replace(parameters=[*signature.parameters.values(), *added])
    command.__signature__ = new  # type: ignore[attr-defined]
    return command


def taken(options: dict[str, Any], *, n: int = 1) -> SamplingParams:
    """The sampling flags among ``options``, which loses them. Raises ``InvalidRequest`` that names
    the field."""
    given = {name: options.pop(name) for name in _FLAGS}
    return flags.sampling_params(**given, n=n)
