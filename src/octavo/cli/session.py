# SPDX-License-Identifier: Apache-2.0
"""Opening a model for a command, and showing an answer while it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.llm.stream import Stream
    from octavo.types.outputs import RequestOutput

OpenLLM = Callable[..., "LLM"]


def open_llm(ctx: typer.Context, model: str, options: dict[str, Any]) -> LLM:
    """An ``LLM`` for ``model``; options that are None keep their defaults.

    ``ctx.obj`` may hold another ``OpenLLM``: embedding programs and tests bring their own.
    """
    given = {name: value for name, value in options.items() if value is not None}
    make: OpenLLM | None = ctx.obj
    if make is None:
        from octavo.llm import LLM

        make = LLM
    return make(model, **given)


@dataclass(slots=True)
class Answer:
    """What ``print_answer`` saw. Times in seconds since the request was made."""

    text: str = ""
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    num_truncated_tokens: int = 0
    first_token_s: float | None = None
    total_s: float = 0.0
    finish_reason: str | None = None
    error: str | None = None
    interrupted: bool = False

    @property
    def tokens_per_s(self) -> float | None:
        """Of the tokens after the first, which alone pays for reading the prompt."""
        if self.first_token_s is None or self.num_tokens < 2 or self.total_s <= self.first_token_s:
            return None
        return (self.num_tokens - 1) / (self.total_s - self.first_token_s)

    def summary(self) -> str:
        parts = [f"{self.num_prompt_tokens} prompt + {self.num_tokens} answer tokens"]
        if self.num_truncated_tokens:
            parts.append(f"{self.num_truncated_tokens} tokens of the prompt cut off")
        if self.first_token_s is not None:
            parts.append(f"first after {self.first_token_s:.2f} s")
        if self.tokens_per_s is not None:
            parts.append(f"{self.tokens_per_s:.1f} tokens/s")
        parts.append("interrupted" if self.interrupted else f"ended by {self.finish_reason}")
        return " · ".join(parts)


def print_answer(outputs: Stream) -> Answer:
    """Print the text of a stream as it comes; Ctrl-C ends the answer and returns what there is."""
    answer = Answer()
    start_s = time.monotonic()
    try:
        for output in outputs:
            answer.total_s = time.monotonic() - start_s
            _take(answer, output)
    except KeyboardInterrupt:
        answer.interrupted = True
    finally:
        outputs.close()  # ends the request if the stream was cut short
    if not answer.text.endswith("\n"):
        print(flush=True)
    return answer


def _count(answer: Answer, output: RequestOutput) -> None:
    answer.num_prompt_tokens = len(output.prompt_token_ids)
    answer.num_tokens = output.num_output_tokens
    if answer.first_token_s is None and output.num_output_tokens:
        answer.first_token_s = answer.total_s
    answer.num_truncated_tokens = output.num_truncated_tokens
    answer.error = output.error
    for completion in output.outputs:
        answer.finish_reason = completion.finish_reason


def _take(answer: Answer, output: RequestOutput) -> None:
    _count(answer, output)
    for completion in output.outputs:
        answer.text += completion.text
        sys.stdout.write(completion.text)
    sys.stdout.flush()


def print_samples(outputs: Stream) -> Answer:
    """Several answers to one prompt, each when all of it is there, in their order.

    ``text`` and ``finish_reason`` are those of the last.
    """
    answer = Answer()
    start_s = time.monotonic()
    texts: dict[int, str] = {}
    try:
        for output in outputs:
            answer.total_s = time.monotonic() - start_s
            for completion in output.outputs:
                texts[completion.index] = texts.get(completion.index, "") + completion.text
            _count(answer, output)
    except KeyboardInterrupt:
        answer.interrupted = True
    finally:
        outputs.close()
    for index, answer.text in sorted(texts.items()):
        print(f"--- {index + 1}", file=sys.stderr, flush=True)
        print(answer.text, flush=True)
    return answer
