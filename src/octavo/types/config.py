# SPDX-License-Identifier: Apache-2.0
"""Settings: frozen, flat, refusing. Each field has a unit, a range and a reason.

``None`` means "choose for this machine"; ``assemble.py`` resolves it and nothing else does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from octavo.types.errors import InvalidConfig


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise ``InvalidConfig``, with name, value and range, unless ``low <= value <= high``."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidConfig(f"{name} must be an integer in [{low}, {high}], got {value!r}")


def check_optional(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None:
        check_range(name, value, low, high)


def check_seconds(name: str, value: float, low: float, high: float) -> None:
    """Raise ``InvalidConfig`` unless ``value`` is a number of seconds in [low, high]."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        raise InvalidConfig(f"{name} must be seconds in [{low:g}, {high:g}], got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """block_size: token slots per block, a multiple of 8 in [8, 256]. Small blocks waste less of a
    sequence's last block; large ones make shorter block tables. 32 fills whole cache lines.

    kv_cache_memory_bytes: size of the KV pool, in bytes; None takes 40 % of the memory left under
    the cgroup limit after the weights. It is reserved as addresses and committed as it is touched.

    num_blocks: exact pool size instead, for tests and experiments.

    enable_prefix_caching: keep the blocks of ended sequences findable until their memory is needed,
    so that a prompt which begins the same is not computed again. On: it costs one hash per block.

    eviction_policy: which findable block goes first: lru, or s3fifo (one that was found before
    outlives one that was not, so a flood of new prompts cannot push out a template).

    watermark: share of the blocks that starting a sequence must leave free, [0, 0.5]: room for
    the running ones to grow before the next preemption.

    swap_space: size of the swap pool in GiB, [0, 2**20]; 0 has none, and preempted sequences are
    computed again. num_swap_blocks: exact size instead. swap_path: directory for a nameless
    file in place of memory.
    """

    block_size: int = 32
    kv_cache_memory_bytes: int | None = None
    num_blocks: int | None = None
    enable_prefix_caching: bool = True
    eviction_policy: str = "lru"
    watermark: float = 0.01
    swap_space: float = 0.0
    num_swap_blocks: int | None = None
    swap_path: str | None = None

    def __post_init__(self) -> None:
        if self.block_size % 8:
            raise InvalidConfig(f"block_size must be a multiple of 8, got {self.block_size}")
        check_range("block_size", self.block_size, 8, 256)
        check_optional("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 1, 2**50)
        check_optional("num_blocks", self.num_blocks, 1, 2**31 - 1)
        check_optional("num_swap_blocks", self.num_swap_blocks, 0, 2**31 - 1)
        check_choice("eviction_policy", self.eviction_policy, ("lru", "s3fifo"))
        _check_number("watermark", self.watermark, 0, 0.5)
        _check_number("swap_space", self.swap_space, 0, 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Who runs, and how much of it in one step. Counts are integers.

    max_num_seqs            sequences that may run at once, [1, 65536]; a request counts all of its
                            samples from the start, so that none of them lacks a row later
    max_num_batched_tokens  tokens one step may compute, [1, 2**20]; it bounds how long running
                            sequences wait for a prefill
    max_model_len           longest prompt plus answer, [1, 2**30]; None takes the model's own

    batching                continuous (requests join and leave at every step) or static (a batch is
                            filled once and refilled when all of it has ended: the baseline)
    scheduling_policy       who starts first: fcfs (arrival), priority (request priority, then
                            arrival), sjf (fewest tokens to compute), hrrn (waiting against work),
                            lpm (longest cached prefix), fair (user served least so far), weighted
                            (priority, waiting and cost, each with its weight)
    priority_weight, ageing_weight, token_weight, block_weight, sample_weight
                            each [0, 1e6], for weighted: per unit of request priority, second of
                            waiting, token to compute, block counted for and sample. The least of
                            priority + cost - waiting starts first; with ageing_weight 0 one may
                            wait for ever
    max_queue_wait_s        seconds, [0, 86400]; who has waited longer starts before everybody who
                            has not, in order of arrival, whatever the policy. 0: never
    promoted_share          share of a step's prompt tokens, [0, 0.9], that only they may have, when
                            one of them is in line or at its prompt
    admission_window        waiting groups that are compared for a start, [1, 4096]: bounds the cost
    lookahead_window        groups tried after one that does not fit, [0, 4096]
    max_overtakes           groups that may pass one which does not fit, [0, 2**20]; then all wait
    max_overtake_steps      steps, [0, 2**20], after the first of them, and all wait. 0: no bound
    admission_reserve       blocks that must be free for a start: none (first chunk), prompt,
                            expected (prompt and the mean answer so far of the service class), full
                            (prompt and max_tokens: nobody is ever preempted, and fewer run),
                            max_model_len (as a contiguous cache has to, whatever was asked for: the
                            baseline)
    max_num_active_seqs     sequences that may have begun and not ended, running or preempted,
                            [1, 65536]; a new one waits while others can come back. None: no bound
    priority_preemption     a class may take running sequences' blocks from the classes below it
    priority_preemption_gap and under policy priority, one whose priority is less by so much may
                            take them within its class, [0, 2**63 - 1]. 0: never
    batch_reserve           share of blocks and seats that the batch class leaves to the others
                            unless it is alone, [0, 0.9]
    high_watermark          share of the blocks, [0, 0.5], that must be available again before
                            anybody starts, once a running group had to give some up
    prefill_share           share of a step's tokens that prompts may take while others decode,
                            [0, 1]; never less than min_prefill_tokens

    max_num_partial_prefills        prompts computed in part at once, [1, 65536]; they share a step
    max_long_partial_prefills       how many of them may be long, [1, 65536]: short ones pass
    long_prefill_token_threshold    tokens from which a prompt is long, [0, 2**30]; 0 takes
                                    max_num_batched_tokens: what one step cannot compute

    scheduler_delay_factor  start new prompts only when the oldest has waited so many times as long
                            as the last prefill took, [0, 100], or "auto"; 0 starts them at once. An
                            idle engine never waits
    slo_itl_ms, slo_ttft_ms milliseconds, (0, 1e6]; the prefill share of a step is kept so small
                            (itl) or made so large (ttft) that the target is met; itl wins
    min_prefill_tokens      the share never goes below this, [1, 2**20], so prompts always advance

    preemption_mode         swap (move blocks out), recompute (drop them), auto (the cheaper by
                            measurement), legacy (swap a group with several sequences, else drop)
    partial_preemption      a sequence that is recomputed gives up only as many blocks as are wanted
                            and keeps the others; not under legacy
    max_preemptions         a group preempted so often is spared while others can give, [0, 2**20];
                            0 spares nobody
    swapped_bonus_s         seconds, [0, 86400], by which a swapped group counts as older: what it
                            has computed is lost when its swap space is needed
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 512
    max_model_len: int | None = None
    batching: str = "continuous"
    scheduling_policy: str = "fcfs"
    priority_weight: float = 1.0
    ageing_weight: float = 1.0
    token_weight: float = 0.01
    block_weight: float = 0.0
    sample_weight: float = 0.0
    max_queue_wait_s: float = 5.0
    promoted_share: float = 0.25
    admission_window: int = 64
    lookahead_window: int = 8
    max_overtakes: int = 16
    max_overtake_steps: int = 256
    admission_reserve: str = "expected"
    max_num_active_seqs: int | None = None
    priority_preemption: bool = True
    priority_preemption_gap: int = 10
    batch_reserve: float = 0.0
    high_watermark: float = 0.02
    prefill_share: float = 1.0
    max_num_partial_prefills: int = 4
    max_long_partial_prefills: int = 1
    long_prefill_token_threshold: int = 0
    scheduler_delay_factor: float | str = 0.0
    slo_itl_ms: float | None = None
    slo_ttft_ms: float | None = None
    min_prefill_tokens: int = 16
    preemption_mode: str = "auto"
    partial_preemption: bool = True
    max_preemptions: int = 3
    swapped_bonus_s: float = 1.0

    def __post_init__(self) -> None:
        check_optional("max_model_len", self.max_model_len, 1, 2**30)
        check_optional("max_num_active_seqs", self.max_num_active_seqs, 1, 65536)
        _check_number("batch_reserve", self.batch_reserve, 0, 0.9)
        _check_number("high_watermark", self.high_watermark, 0, 0.5)
        _check_number("prefill_share", self.prefill_share, 0, 1)
        _check_number("promoted_share", self.promoted_share, 0, 0.9)
        for name in ("priority", "ageing", "token", "block", "sample"):
            _check_number(f"{name}_weight", getattr(self, f"{name}_weight"), 0, 1e6)
        for name, (low, high) in _SCHEDULER_RANGES.items():
            check_range(name, getattr(self, name), low, high)
        for name, choices in _SCHEDULER_CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        check_seconds("max_queue_wait_s", self.max_queue_wait_s, 0, 86400)
        check_seconds("swapped_bonus_s", self.swapped_bonus_s, 0, 86400)
        if self.scheduler_delay_factor != "auto":
            _check_number("scheduler_delay_factor", self.scheduler_delay_factor, 0, 100)
        for name in ("slo_itl_ms", "slo_ttft_ms"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), 1e-3, 1e6)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidConfig(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def _check_number(name: str, value: object, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and isinstance(value, int | float) and low <= value <= high):
        raise InvalidConfig(f"{name} must be a number in [{low:g}, {high:g}], got {value!r}")


_SCHEDULER_RANGES = {
    "max_num_seqs": (1, 65536),
    "max_num_batched_tokens": (1, 2**20),
    "admission_window": (1, 4096),
    "lookahead_window": (0, 4096),
    "max_overtakes": (0, 2**20),
    "max_overtake_steps": (0, 2**20),
    "priority_preemption_gap": (0, 2**63 - 1),
    "max_num_partial_prefills": (1, 65536),
    "max_long_partial_prefills": (1, 65536),
    "long_prefill_token_threshold": (0, 2**30),
    "min_prefill_tokens": (1, 2**20),
    "max_preemptions": (0, 2**20),
}

_SCHEDULER_CHOICES = {
    "batching": ("continuous", "static"),
    "scheduling_policy": ("fcfs", "priority", "sjf", "hrrn", "lpm", "fair", "weighted"),
    "admission_reserve": ("none", "prompt", "expected", "full", "max_model_len"),
    "preemption_mode": ("swap", "recompute", "auto", "legacy"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """threads: compute threads; None takes the affinity mask and the cgroup quota into account.
    isa: kernel table by name; None takes the best that this machine can run. seed: source of
    the seeds of requests that bring none; None draws it from the system.

    pipeline_depth: plans in flight, 1 to 4. 1 plans and computes by turns; 2 plans the next step
    while one computes. None takes 2 where a CPU is left for planning beside the compute threads,
    else 1: on two cores with two threads, 2 was measured 5-10 % slower. More gain nothing, and
    every plan in flight is one step that an abort, a stop or a newcomer waits for: 5 are refused.

    watchdog_s: with work and no progress for so many seconds, the engine reports that it is stuck.
    Above the longest step. request_lease_s: a request whose consumer has not taken anything for so
    long is aborted. reclaim_interval_s: between two searches for leaked blocks; block_lease_s: for
    so long a leak is only watched before it is taken back. block_audit_interval_s: between two
    summaries of the KV blocks in the log. Each at most 86400; 0 turns it off, and lets
    block_lease_s take back at once.

    max_num_queued_reqs, max_num_queued_tokens: requests, and tokens of their prompts, that may wait
    at once, [0, 2**20] and [0, 2**40]; a server refuses more with 429 instead of letting all of
    them wait ever longer. A prompt of any length may wait alone. 0: no bound.
    """

    threads: int | None = None
    isa: str | None = None
    seed: int | None = None
    pipeline_depth: int | None = None
    watchdog_s: float = 60.0
    request_lease_s: float = 60.0
    reclaim_interval_s: float = 10.0
    block_lease_s: float = 60.0
    block_audit_interval_s: float = 30.0
    max_num_queued_reqs: int = 0
    max_num_queued_tokens: int = 0

    def __post_init__(self) -> None:
        check_optional("threads", self.threads, 1, 1024)
        check_optional("pipeline_depth", self.pipeline_depth, 1, 4)
        check_range("max_num_queued_reqs", self.max_num_queued_reqs, 0, 2**20)
        check_range("max_num_queued_tokens", self.max_num_queued_tokens, 0, 2**40)
        for name in _INTERVALS:
            check_seconds(name, getattr(self, name), 0.0, 86400.0)


_INTERVALS = (
    "watchdog_s",
    "request_lease_s",
    "reclaim_interval_s",
    "block_lease_s",
    "block_audit_interval_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatConfig:
    """chat_template: a file with a template that takes the place of the model's own.

    tool_call_parser: how the model writes calls; auto reads it off the template.
    reasoning_parser: the tags around its reasoning; auto reads them off too, none leaves reasoning
    in the text, deepseek_r1 takes an answer for reasoning until the closing tag.
    chat_template_content_format: whether messages reach the template as text or, openai, as parts.

    default_chat_template_kwargs: variables of the template for requests that do not set them, as
    the JSON text of an object.
    """

    chat_template: str | None = None
    tool_call_parser: str = "auto"
    reasoning_parser: str = "auto"
    chat_template_content_format: str = "auto"
    default_chat_template_kwargs: str | None = None

    def __post_init__(self) -> None:
        for name, choices in CHAT_CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        _check_object("default_chat_template_kwargs", self.default_chat_template_kwargs)


CHAT_CHOICES = {
    "tool_call_parser": ("auto", "hermes", "llama3_json", "mistral", "pythonic"),
    "reasoning_parser": ("auto", "none", "deepseek_r1", "mistral", "qwen3"),
    "chat_template_content_format": ("auto", "string", "openai"),
}


def _check_object(name: str, text: str | None) -> None:
    """Raise ``InvalidConfig`` unless ``text`` is None or the JSON text of an object."""
    if text is None:
        return
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidConfig(f"{name} must be the JSON text of an object, got {text!r:.60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything that an engine needs beside the model's name."""

    cache: CacheConfig = CacheConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    runtime: RuntimeConfig = RuntimeConfig()
    chat: ChatConfig = ChatConfig()
