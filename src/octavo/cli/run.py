# SPDX-License-Identifier: Apache-2.0
"""``octavo run``: one prompt, one answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli import flags
from octavo.cli.session import open_llm, print_answer
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
    "cat letter.txt | octavo run -",
    'octavo run --model ./model.gguf --raw --temperature 0 "def fibonacci(n):"',
)


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
    max_tokens: flags.MaxTokens = 256,
    temperature: flags.Temperature = 0.0,
    top_p: flags.TopP = 1.0,
    top_k: flags.TopK = 0,
    seed: flags.Seed = None,
    stop: flags.Stop = None,
    threads: flags.Threads = None,
    isa: flags.Isa = None,
    max_model_len: flags.MaxModelLen = None,
    kv_cache_memory: flags.KvCacheMemory = None,
    stats: Annotated[
        bool, typer.Option("--stats/--no-stats", help="Print counts and speed on standard error.")
    ] = True,
) -> None:
    """Answer one prompt, streaming.

    Pulls the model first if it is not here.
    """
    params = flags.sampling_params(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=stop,
    )
    text = _read_prompt(prompt)
    options = {
        "threads": threads,
        "isa": isa,
        "max_model_len": max_model_len,
        "kv_cache_memory_bytes": kv_cache_memory,
        "max_num_seqs": 1,
    }
    with open_llm(ctx, model, options) as llm:
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
