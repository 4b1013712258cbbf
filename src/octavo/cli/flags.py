# SPDX-License-Identifier: Apache-2.0
"""Flags that several commands share, explained once: unit, default, and why one would turn it."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from octavo.types.sampling_params import SamplingParams

_UNITS = {
    "": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "ki": 1024,
    "mi": 1024**2,
    "gi": 1024**3,
    "ti": 1024**4,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)


def parse_bytes(text: str | int) -> int:
    """``2GiB``, ``512MB``, ``1.5G`` or plain bytes. Raises a usage error that shows the forms."""
    match = _SIZE.fullmatch(str(text).strip())
    unit = match[2].lower() if match else "?"
    if match is None or unit not in _UNITS:
        raise typer.BadParameter(f"{text!r} is not a size; write 2GiB, 512MB or bytes")
    return int(float(match[1]) * _UNITS[unit])


def parse_count(text: str | int) -> int:
    """A number of tokens, with vLLM's short forms: ``8192``, ``32k`` (x 1000), ``32K`` (x 1024)."""
    match = re.fullmatch(r"(\d+)([kKmM]?)", str(text).strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a number of tokens; write 8192 or 32k")
    return int(match[1]) * {"": 1, "k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}[match[2]]


# Headings of the help page.
_MODEL_PANEL = "Model and machine"
_CACHE_PANEL = "Scheduler and KV cache"
_ANSWER_PANEL = "Answer"


def _option(*names: str, panel: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, help=help, **more)


Model = Annotated[
    str,
    _option(
        "--model",
        "-m",
        metavar="NAME",
        panel=_MODEL_PANEL,
        help="An alias (see `octavo models`), a .gguf file, a directory, or a hub id such as "
        "org/name:file.gguf. Pulled first if need be.",
    ),
]
Threads = Annotated[
    int | None,
    _option(
        "--threads",
        "-t",
        metavar="N",
        min=1,
        max=1024,
        panel=_MODEL_PANEL,
        help="Compute threads. Default: what the affinity mask, the cgroup quota and the physical "
        "cores allow (`octavo doctor` tells); more than that is slower.",
    ),
]
Isa = Annotated[
    str | None,
    _option(
        "--isa",
        metavar="NAME",
        panel=_MODEL_PANEL,
        help="Kernel table by name, e.g. avx2 or scalar, to compare them. Default: the best that "
        "this CPU runs.",
    ),
]
MaxModelLen = Annotated[
    int | None,
    _option(
        "--max-model-len",
        "-c",
        parser=parse_count,
        metavar="TOKENS",
        panel=_CACHE_PANEL,
        help="Longest prompt plus answer, in tokens (32k works). Default: the model's own context.",
    ),
]
MaxNumSeqs = Annotated[
    int | None,
    _option(
        "--max-num-seqs",
        metavar="N",
        panel=_CACHE_PANEL,
        help="Sequences computed together; more waits in the queue. Default: 256. Lower it to give "
        "each running one more speed.",
    ),
]
MaxNumBatchedTokens = Annotated[
    int | None,
    _option(
        "--max-num-batched-tokens",
        metavar="TOKENS",
        panel=_CACHE_PANEL,
        help="Tokens that one step may compute. Default: 512. Smaller: running answers stutter "
        "less while a long prompt is read; larger: prompts are read faster.",
    ),
]
BlockSize = Annotated[
    int | None,
    _option(
        "--block-size",
        metavar="SLOTS",
        panel=_CACHE_PANEL,
        help="Token slots per block of the KV cache, a multiple of 8. Default: 32. Smaller wastes "
        "less of each sequence's last block.",
    ),
]
KvCacheMemory = Annotated[
    int | None,
    _option(
        "--kv-cache-memory",
        "--kv-cache-memory-bytes",
        parser=parse_bytes,
        metavar="SIZE",
        panel=_CACHE_PANEL,
        help="Size of the KV cache, e.g. 2GiB or 512MB. Default: fitted to the memory that is left "
        "under the cgroup limit after the weights.",
    ),
]
MaxTokens = Annotated[
    int | None,
    _option(
        "--max-tokens",
        "-n",
        min=1,
        metavar="TOKENS",
        panel=_ANSWER_PANEL,
        help="Longest answer, in tokens.",
    ),
]
Temperature = Annotated[
    float,
    _option(
        "--temperature",
        metavar="X",
        min=0.0,
        max=2.0,
        panel=_ANSWER_PANEL,
        help="0 always takes the likeliest token, so the answer repeats; 0.7 to 1 varies it.",
    ),
]
TopP = Annotated[
    float,
    _option(
        "--top-p",
        metavar="P",
        panel=_ANSWER_PANEL,
        help="Sample among the likeliest tokens that together reach this probability; 1 is all.",
    ),
]
TopK = Annotated[
    int,
    _option(
        "--top-k",
        metavar="K",
        panel=_ANSWER_PANEL,
        help="Sample among this many likeliest tokens; 0 is all.",
    ),
]
MinP = Annotated[
    float,
    _option(
        "--min-p",
        metavar="P",
        panel=_ANSWER_PANEL,
        help="Leave out tokens less likely than this part of the likeliest one; 0 is off.",
    ),
]
RepetitionPenalty = Annotated[
    float,
    _option(
        "--repetition-penalty",
        metavar="X",
        panel=_ANSWER_PANEL,
        help="Above 1 makes the tokens of prompt and answer less likely to come again; 1 is off.",
    ),
]
PresencePenalty = Annotated[
    float,
    _option(
        "--presence-penalty",
        metavar="X",
        panel=_ANSWER_PANEL,
        help="Above 0 makes tokens that the answer has less likely, once and for all; -2 to 2.",
    ),
]
FrequencyPenalty = Annotated[
    float,
    _option(
        "--frequency-penalty",
        metavar="X",
        panel=_ANSWER_PANEL,
        help="The same for each time that the answer has them; -2 to 2.",
    ),
]
BadWords = Annotated[
    list[str] | None,
    _option(
        "--bad-word",
        metavar="TEXT",
        panel=_ANSWER_PANEL,
        help="The answer may not have this text; may be given several times.",
    ),
]
Seed = Annotated[
    int | None,
    _option(
        "--seed",
        metavar="N",
        min=0,
        panel=_ANSWER_PANEL,
        help="With a seed a sampled answer repeats exactly. Default: another one each time.",
    ),
]
Stop = Annotated[
    list[str] | None,
    _option(
        "--stop",
        metavar="TEXT",
        panel=_ANSWER_PANEL,
        help="End the answer before this text; may be given several times.",
    ),
]


NumSamples = Annotated[
    int,
    _option(
        "--num-samples",
        "--n",
        metavar="N",
        min=1,
        panel=_ANSWER_PANEL,
        help="Answers to each prompt; above 1 it needs a temperature.",
    ),
]


def one_model(ctx: typer.Context, argument: str | None, option: str) -> str:
    """The model that was named, as an argument or by --model. Raises a usage error for both."""
    source = ctx.get_parameter_source("model")
    if argument is not None and source is not None and source.name == "COMMANDLINE":
        raise typer.BadParameter(f"{argument} and --model {option} both name a model; give one")
    return option if argument is None else argument


def sampling_params(
    *,
    max_tokens: int | None,
    temperature: float,
    top_p: float,
    top_k: int,
    seed: int | None,
    stop: list[str] | None = None,
    n: int = 1,
    **more: Any,
) -> SamplingParams:
    """The flags above as one object, and ``more`` of its fields; raises ``InvalidRequest`` that
    names the field."""
    return SamplingParams(
        n=n,
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        stop=tuple(stop or ()),
        **more,
    )
