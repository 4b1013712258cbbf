# SPDX-License-Identifier: Apache-2.0
"""The flags that set one field of a configuration each, as data.

A flag has its field's name and type, and None stands for the field's own default, which the help
quotes. Ranges are checked by the configuration itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from octavo.types.config import CacheConfig, ChatConfig, RuntimeConfig, SchedulerConfig

F = TypeVar("F", bound=Callable[..., None])

CACHE, SCHEDULER, RUNTIME, CHAT = "KV cache and swap", "Scheduling", "Engine", "Chat"


@dataclass(frozen=True, slots=True)
class Knob:
    """``help`` says what one gets for turning it; ``metavar`` its unit."""

    field: str
    metavar: str | None
    help: str


_KNOBS: dict[str, tuple[Knob, ...]] = {
    CACHE: (
        Knob(
            "enable_prefix_caching",
            None,
            "Keep the blocks of ended requests findable until their memory is needed, so that a "
            "prompt which begins the same is not computed again.",
        ),
        Knob(
            "eviction_policy",
            "NAME",
            "Which findable block goes first: lru, or s3fifo, with which a flood of new prompts "
            "cannot push out a template that is used again and again.",
        ),
        Knob(
            "watermark",
            "SHARE",
            "Share of the blocks, 0 to 0.5, that a start must leave free. Higher: fewer "
            "preemptions, and fewer requests together.",
        ),
        Knob(
            "swap_space",
            "GIB",
            "Size of the swap pool in GiB. With one, preempted requests are moved out and back "
            "instead of being computed again.",
        ),
        Knob("swap_path", "DIR", "Swap to a mapped file in this directory instead of to memory."),
    ),
    SCHEDULER: (
        Knob(
            "batching",
            "NAME",
            "continuous: requests join and leave at every step; static: a batch is refilled when "
            "all of it has ended (to compare).",
        ),
        Knob(
            "scheduling_policy",
            "NAME",
            "Who starts first: fcfs (arrival), priority, sjf (fewest tokens to compute), hrrn "
            "(waiting against work), lpm (longest cached prefix), fair (user served least), "
            "weighted (by the five weights below).",
        ),
        Knob("priority_weight", "X", "weighted: of a request's priority; the least sum is first."),
        Knob("ageing_weight", "X", "weighted: of a second waited. 0: some may wait for ever."),
        Knob("token_weight", "X", "weighted: of a prompt token that is to be computed."),
        Knob("block_weight", "X", "weighted: of a block that the request is counted for."),
        Knob("sample_weight", "X", "weighted: of each sample (n)."),
        Knob(
            "max_queue_wait_s",
            "SECONDS",
            "Who has waited longer starts before everybody who has not, whatever the policy. 0: "
            "never.",
        ),
        Knob(
            "promoted_share",
            "SHARE",
            "Share of a step's prompt tokens, 0 to 0.9, kept for those who have.",
        ),
        Knob("admission_window", "N", "Waiting requests that are compared for a start."),
        Knob("lookahead_window", "N", "Requests that are tried after one that does not fit."),
        Knob("max_overtakes", "N", "Requests that may pass one which does not fit; then all wait."),
        Knob(
            "max_overtake_steps", "STEPS", "So long after the first has passed, too. 0: no bound."
        ),
        Knob(
            "admission_reserve",
            "NAME",
            "Blocks that must be free for a start: none (for the first chunk), prompt, expected "
            "(also for an answer of its class's mean length), full (for the longest answer: nobody "
            "is ever preempted, and fewer run), max_model_len (as a contiguous cache must: to "
            "compare).",
        ),
        Knob(
            "max_num_active_seqs",
            "N",
            "Sequences that may have begun and not ended, preempted ones included. Lower: less "
            "is begun that must then wait for memory.",
        ),
        Knob(
            "prefill_share",
            "SHARE",
            "Share of a step's tokens, 0 to 1, that prompts may take while others decode. Lower: "
            "steadier answers, later first tokens.",
        ),
        Knob(
            "high_watermark",
            "SHARE",
            "Share of the blocks, 0 to 0.5, that must be available again before anybody starts, "
            "once a running request had to give some up.",
        ),
        Knob(
            "batch_reserve",
            "SHARE",
            "Share of blocks and seats, 0 to 0.9, that requests of the batch class leave to the "
            "others, unless they are alone.",
        ),
        Knob(
            "priority_preemption",
            None,
            "Let a more urgent class take running requests' blocks from the less urgent ones.",
        ),
        Knob(
            "priority_preemption_gap",
            "N",
            "Under policy priority, let a request take them from one of its class whose priority "
            "is higher by so much. 0: never.",
        ),
        Knob("max_num_partial_prefills", "N", "Prompts that share the steps while they are read."),
        Knob(
            "max_long_partial_prefills",
            "N",
            "How many of them may be long; a lower number lets short prompts pass.",
        ),
        Knob(
            "long_prefill_token_threshold",
            "TOKENS",
            "From so many tokens on a prompt is long. 0: what one step cannot compute.",
        ),
        Knob(
            "scheduler_delay_factor",
            "X",
            "Start prompts only when the oldest has waited so many times as long as the last "
            "prefill took, or auto: larger batches of prompts, later first tokens.",
        ),
        Knob(
            "slo_itl_ms",
            "MS",
            "Wanted time between two tokens: prompts are read in pieces so small that it is met.",
        ),
        Knob(
            "slo_ttft_ms",
            "MS",
            "Wanted time to the first token: prompts are read in pieces so large that it is met.",
        ),
        Knob("min_prefill_tokens", "TOKENS", "The two above never make the pieces smaller."),
        Knob(
            "preemption_mode",
            "NAME",
            "What becomes of a preempted request's blocks: swap (moved out), recompute (dropped), "
            "auto (the cheaper by measurement), legacy (swap for several samples, else recompute).",
        ),
        Knob(
            "partial_preemption",
            None,
            "Let a preempted request keep the blocks that nobody wants yet, instead of dropping "
            "all of them.",
        ),
        Knob(
            "max_preemptions",
            "N",
            "Who was preempted so often is spared while others can give. 0 spares nobody.",
        ),
        Knob("swapped_bonus_s", "SECONDS", "A swapped request counts as so much older."),
    ),
    RUNTIME: (
        Knob(
            "pipeline_depth",
            "N",
            "Steps planned ahead, 1 to 4. 1 plans and computes by turns; each more is one more "
            "step that an abort or a newcomer waits for.",
        ),
        Knob(
            "max_num_queued_reqs",
            "N",
            "Requests that may wait; more are refused with 429 instead of making all of them wait "
            "longer. 0: no bound.",
        ),
        Knob(
            "max_num_queued_tokens",
            "TOKENS",
            "Prompt tokens that may wait, likewise. 0: no bound.",
        ),
        Knob(
            "watchdog_s",
            "SECONDS",
            "Without progress for so long, /health/live fails. Above the longest step; 0: never.",
        ),
        Knob(
            "request_lease_s",
            "SECONDS",
            "A request whose answer nobody has taken for so long is aborted. 0: never.",
        ),
        Knob("reclaim_interval_s", "SECONDS", "Between two searches for leaked blocks. 0: never."),
        Knob("block_lease_s", "SECONDS", "So long a leak is only watched before it is taken back."),
        Knob(
            "block_audit_interval_s",
            "SECONDS",
            "Between two summaries of the KV blocks in the log. 0: none.",
        ),
    ),
    CHAT: (
        Knob("chat_template", "FILE", "A chat template that takes the place of the model's own."),
        Knob(
            "tool_call_parser",
            "NAME",
            "How the model writes calls of tools: hermes (Qwen too), llama3_json, mistral, "
            "pythonic, or auto, which reads it off the chat template.",
        ),
        Knob(
            "reasoning_parser",
            "NAME",
            "How the model marks its reasoning: qwen3, deepseek_r1 (an answer begins with it), "
            "mistral, none (leave it in the text), or auto.",
        ),
        Knob(
            "chat_template_content_format",
            "NAME",
            "What the template takes as content: string, openai (a list of parts), or auto.",
        ),
        Knob(
            "default_chat_template_kwargs",
            "JSON",
            'Variables of the template where a request sets none, like {"enable_thinking": false}.',
        ),
    ),
}

# Fields of the configurations that no flag sets.
WITHOUT_FLAG = {
    "num_blocks": "an exact size for experiments; operators give --kv-cache-memory",
    "num_swap_blocks": "an exact size for experiments; operators give --swap-space",
}

_TYPES: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str}
_FIELDS: dict[str, Field[Any]] = {
    field.name: field
    for config in (CacheConfig, SchedulerConfig, RuntimeConfig, ChatConfig)
    for field in fields(config)
}


def parse_factor(text: str | float) -> float | str:
    """A number or ``auto``. Raises a usage error."""
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor auto") from None


def with_knobs(command: F) -> F:
    """Give a command, which takes ``**knobs``, a flag for each of the above."""
    return _with_knobs(command, hidden=False)


def with_quiet_knobs(command: F) -> F:
    """The same, but the help does not list them: for commands where few want them."""
    return _with_knobs(command, hidden=True)


def _with_knobs(command: F, *, hidden: bool) -> F:
    annotations = {
        knob.field: _annotation(knob, panel, hidden=hidden)
        for panel, panel_knobs in _KNOBS.items()
        for knob in panel_knobs
    }
    return add_options(command, annotations)


def add_options(command: F, annotations: Mapping[str, Any]) -> F:
    """Give a command, which takes ``**knobs``, more parameters; each is None unless given."""
    signature, hints = inspect.signature(command), get_type_hints(command, include_extras=True)
    own = [
        one.replace(annotation=hints[one.name])
        for one in signature.parameters.values()
        if one.kind is not one.VAR_KEYWORD
    ]
    knobs = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in annotations.items()
    ]
    command.__annotations__ |= {one.name: one.annotation for one in knobs}
    command.__annotations__.pop("knobs", None)
    new = signature.replace(parameters=[*own, *knobs])
    command.__signature__ = new  # type: ignore[attr-defined]
    return command


def _annotation(knob: Knob, panel: str, *, hidden: bool) -> Any:
    field = _FIELDS[knob.field]
    flag = "--" + knob.field.replace("_", "-")
    kind, *others = str(field.type).replace(" | None", "").split(" | ")
    if kind == "bool":
        flag += f"/--no-{flag.removeprefix('--')}"
    option = typer.Option(
        flag,
        metavar=knob.metavar,
        parser=parse_factor if others else None,
        help=f"{knob.help} Default: {default_of(field)}.",
        rich_help_panel=panel,
        show_default=False,
        hidden=hidden,
    )
    return Annotated[(str if others else _TYPES[kind]) | None, option]


def default_of(field: Field[Any]) -> str:
    if isinstance(field.default, bool):
        return "on" if field.default else "off"
    return "none" if field.default in (None, ()) else str(field.default).removesuffix(".0")
