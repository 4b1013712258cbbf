# SPDX-License-Identifier: Apache-2.0
"""``octavo run``: one prompt, one answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli import flags
from octavo.cli.config_file import Config
from octavo.cli.knobs import with_quiet_knobs
from octavo.cli.sampling_flags import taken, with_sampling
from octavo.cli.session import open_llm, print_answer, print_samples
from octavo.hub.aliases import DEFAULT_MODEL
from octavo.types.errors import StepFailed

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.llm.stream import Stream
    from octavo.types.sampling_params import SamplingParams

DEFAULT_PROMPT = "Give three tips for learning to cook."
EXAMPLES = (
    'octavo run "Why is the sky blue?"',
    'octavo run --model gemma3-270m --max-tokens 40 "Once upon a time"',
    'octavo run --n 3 --temperature 0.8 "A name for a cat?"',
    "cat letter.txt | octavo run -",
    'octavo run --model ./model.gguf --raw --temperature 0 "def fibonacci(n):"',
)


@with_sampling
@with_quiet_knobs
def run(
    ctx: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT",
            help="What to ask; - reads standard input. Without it a sample question is asked.",
            show_default=False,
        ),
    ] = None,
    model: flags.Model = DEFAULT_MODEL,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Continue the prompt as plain text: no chat template."),
    ] = False,
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="TEXT", help="System message before the prompt."),
    ] = None,
    num_samples: flags.NumSamples = 1,
    threads: flags.Threads = None,
    isa: flags.Isa = None,
    max_model_len: flags.MaxModelLen = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    stats: Annotated[
        bool, typer.Option("--stats/--no-stats", help="Print counts and speed on standard error.")
    ] = True,
    config: Config = None,
    **knobs: Any,
) -> None:
    """Answer one prompt, streaming; several answers are shown when they are complete.

    Pulls the model first if it is not here.
    """
    params = taken(knobs, n=num_samples)
    text = _read_prompt(prompt)
    options = {
        **knobs,
        "threads": threads,
        "isa": isa,
        "max_model_len": max_model_len,
        "kv_cache_memory_bytes": kv_cache_memory,
        "max_num_seqs": num_samples,
    }
    with open_llm(ctx, model, options) as llm:
        if num_samples > 1:
            answer = print_samples(_ask(llm, text, params, raw=raw, system=system))
        else:
            answer = print_answer(_ask(llm, text, params, raw=raw, system=system))
    if stats:
        print(answer.summary(), file=sys.stderr)
    if answer.error is not None:
        raise StepFailed(answer.error)
    if answer.interrupted:
        raise KeyboardInterrupt


def _read_prompt(prompt: str | None) -> str:
    if prompt == "-":
        return sys.stdin.read()
    if prompt is not None:
        return prompt
    print(f"> {DEFAULT_PROMPT}", file=sys.stderr)
    return DEFAULT_PROMPT


def _ask(llm: LLM, text: str, params: SamplingParams, *, raw: bool, system: str | None) -> Stream:
    if raw or llm.get_tokenizer().chat_template is None:
        return llm.stream(text if system is None else f"{system}\n\n{text}", params)
    messages: list[dict[str, object]] = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return llm.stream_chat(messages, params)
