# SPDX-License-Identifier: Apache-2.0
"""The composition root: a model's name and a configuration become a running engine.

The one module that knows the concrete classes, and the one that turns every "choose for me" (None)
into a value.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from octavo import hub
from octavo.engine.chaos import Chaos
from octavo.engine.engine import Engine
from octavo.executor.inline import InlineExecutor
from octavo.executor.threaded import ThreadedExecutor
from octavo.formats.gguf import GgufFile
from octavo.loaders.gguf import check_gguf, load_gguf
from octavo.machine.cpus import CpuBudget, cpu_budget
from octavo.machine.memory import memory_budget
from octavo.models import registry
from octavo.ops.decoder import DEFAULT_SPIN_US, Decoder
from octavo.progress import Progress, silent
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.gguf_vocab import tokenizer_from_gguf
from octavo.types import env
from octavo.types.config import CacheConfig, ChatConfig, EngineConfig, RuntimeConfig
from octavo.types.decoder_spec import DecoderSpec
from octavo.types.errors import InvalidConfig, InvalidRequest
from octavo.types.ports import Executor, Tokenizer
from octavo.types.sampling_params import SEED_MAX
from octavo.worker.worker import Worker

KV_SHARE = 0.4  # of the memory left after the weights: the rest is the user's


@dataclass(frozen=True, slots=True)
class Assembled:
    """An engine and what was found out on the way. ``close`` frees weights, KV memory, threads."""

    engine: Engine
    tokenizer: Tokenizer
    model_name: str
    spec: DecoderSpec
    isa: str
    num_threads: int
    chat: ChatConfig = ChatConfig()  # noqa: RUF009 (frozen)

    def close(self) -> None:
        self.engine.close()


def build_engine(
    model: str | Path,
    config: EngineConfig = EngineConfig(),  # noqa: B008 (frozen)
    *,
    progress: Progress | None = None,
    load_progress: Progress = silent,
) -> Assembled:
    """Resolve, load and start ``model``: an alias, a path or a hub id.

    ``progress`` hears of a download, ``load_progress`` of the reading that follows. Raises
    ``ModelError`` or ``InvalidConfig``. Cost: reading the file once and packing it on all
    threads; the KV pool costs nothing until tokens fill it.
    """
    resolved = hub.resolve(str(model), progress=progress)
    file = GgufFile.open(resolved.path)
    try:
        return start_engine(file, config, model_name=resolved.name, progress=load_progress)
    finally:
        file.close()


def start_engine(
    file: GgufFile,
    config: EngineConfig,
    *,
    model_name: str,
    spec: DecoderSpec | None = None,
    progress: Progress = silent,
    depth: int | None = None,
) -> Assembled:
    """An engine for an open checkpoint, which may be closed afterwards.

    ``spec`` overrides what the file says about itself: for experiments and planted errors.
    ``depth`` overrides ``pipeline_depth`` and its bound: to measure why there is one.
    """
    template = read_chat_template(config.chat)
    decoder, spec, tokenizer = load_model(
        file, config.runtime, spec, chat_template=template, progress=progress
    )
    depth = depth or choose_depth(config.runtime, decoder.num_threads, cpu_budget())
    try:
        engine = _start(decoder, spec, tokenizer, config, depth)
    except BaseException:
        decoder.close()
        raise
    return Assembled(
        engine, tokenizer, model_name, spec, decoder.isa, decoder.num_threads, config.chat
    )


def read_chat_template(chat: ChatConfig) -> str | None:
    """The template that takes the place of the model's own. Raises ``InvalidConfig``."""
    if chat.chat_template is None:
        return None
    try:
        source = Path(chat.chat_template).read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"chat_template must be a file of UTF-8 text: {error}") from error
    try:
        ChatTemplate(source, special_tokens={}).check()
    except InvalidRequest as error:
        raise InvalidConfig(f"chat_template {chat.chat_template}: {error}") from error
    return source


def load_model(
    file: GgufFile,
    runtime: RuntimeConfig,
    spec: DecoderSpec | None = None,
    *,
    chat_template: str | None = None,
    progress: Progress = silent,
) -> tuple[Decoder, DecoderSpec, Tokenizer]:
    """The weights and the tokenizer of a checkpoint; ``chat_template`` replaces its own.

    Packing weights runs in native code without the GIL, so the vocabulary is built meanwhile.
    """
    own_spec, tensors = registry.spec_for(file)
    check_gguf(file, tensors)
    decoder = _new_decoder(spec or own_spec, runtime)
    try:
        with ThreadPoolExecutor(max_workers=1) as loading:
            weights = loading.submit(load_gguf, file, tensors, decoder, progress)
            tokenizer = tokenizer_from_gguf(file.metadata, chat_template=chat_template)
            weights.result()
    except BaseException:
        decoder.close()
        raise
    return decoder, spec or own_spec, tokenizer


def _new_decoder(spec: DecoderSpec, runtime: RuntimeConfig) -> Decoder:
    budget = cpu_budget().threads
    threads = runtime.threads or budget
    spin_us = env.spin_us()
    if spin_us is None:  # who spins while its peer waits for the same CPU only holds it up
        spin_us = DEFAULT_SPIN_US if threads <= budget else 0
    try:
        return Decoder(
            spec,
            num_threads=threads,
            isa=runtime.isa or env.isa(),
            spin_us=spin_us,
        )
    except ValueError as error:  # a kernel table that is unknown or cannot run here
        raise InvalidConfig(str(error)) from error


def _start(
    decoder: Decoder,
    spec: DecoderSpec,
    tokenizer: Tokenizer,
    config: EngineConfig,
    depth: int,
) -> Engine:
    limits = config.scheduler
    _create_kv_cache(decoder, spec, config)
    num_swap_blocks = choose_num_swap_blocks(config.cache, spec)
    if num_swap_blocks:
        _check_swap(num_swap_blocks, config.cache, spec)
        _create_swap(decoder, num_swap_blocks, config.cache.swap_path)
    model_len = _model_len(limits.max_model_len, spec.context_length)
    seed = config.runtime.seed
    source = random.SystemRandom() if seed is None else random.Random(seed)
    rates = env.chaos()
    return Engine(
        _new_executor(Worker(decoder), depth),
        tokenizer,
        replace(config, scheduler=replace(limits, max_model_len=model_len)),
        clock=time.monotonic,
        seeds=lambda: source.getrandbits(SEED_MAX.bit_length()),
        window=spec.window,
        # A source of its own: faults must not move the seeds of the requests.
        chaos=None if rates is None else Chaos(rates, random.Random(f"chaos {seed}")),
    )


def choose_depth(runtime: RuntimeConfig, num_threads: int, budget: CpuBudget) -> int:
    """Plans in flight: 2 only where planning has a CPU of its own beside ``num_threads``."""
    if runtime.pipeline_depth is not None:
        return runtime.pipeline_depth
    num_cpus: float = budget.num_affine
    if budget.quota_cpus is not None:
        num_cpus = min(num_cpus, budget.quota_cpus)
    return 2 if num_cpus >= num_threads + 1 else 1


def _new_executor(worker: Worker, depth: int) -> Executor:
    return InlineExecutor(worker) if depth == 1 else ThreadedExecutor(worker, depth=depth)


def _create_kv_cache(decoder: Decoder, spec: DecoderSpec, config: EngineConfig) -> None:
    """Raises ``InvalidConfig`` for a pool that would be killed when it fills, or never starts."""
    cache, limits, memory = config.cache, config.scheduler, memory_budget()
    num_blocks = choose_num_blocks(cache, spec, usable_bytes=memory.usable)
    kv_bytes = num_blocks * cache.block_size * spec.kv_bytes_per_token()
    if kv_bytes > memory.total:
        raise InvalidConfig(
            f"the KV cache must fit into the memory of {memory.total} bytes, got {kv_bytes}"
        )
    try:
        decoder.create_kv_cache(
            num_blocks,
            cache.block_size,
            num_rows=limits.max_num_seqs,
            step_tokens_max=limits.max_num_batched_tokens,
        )
    except (ValueError, MemoryError) as error:
        raise InvalidConfig(f"the system refuses this KV cache or step size: {error}") from error


def _check_swap(num_blocks: int, cache: CacheConfig, spec: DecoderSpec) -> None:
    """Raises ``InvalidConfig`` for a swap pool in memory that this machine does not have."""
    num_bytes = num_blocks * cache.block_size * spec.kv_bytes_per_token()
    total = memory_budget().total
    if cache.swap_path is None and num_bytes > total:
        raise InvalidConfig(
            f"swap_space in memory must fit into its {total} bytes, got {num_bytes}; with swap_path"
            " it may be a file"
        )


def _create_swap(decoder: Decoder, num_blocks: int, path: str | None) -> None:
    try:
        decoder.create_swap(num_blocks, path)
    except (ValueError, RuntimeError, MemoryError, OSError) as error:
        raise InvalidConfig(f"the system refuses this swap space: {error}") from error


def choose_num_blocks(cache: CacheConfig, spec: DecoderSpec, *, usable_bytes: int) -> int:
    """Blocks of the KV pool. Raises ``InvalidConfig`` when not even one fits."""
    if cache.num_blocks is not None:
        return cache.num_blocks
    budget = cache.kv_cache_memory_bytes
    if budget is None:
        budget = int(usable_bytes * KV_SHARE)
    block_bytes = spec.kv_bytes_per_token() * cache.block_size
    if budget < block_bytes:
        raise InvalidConfig(
            f"the KV cache must hold at least one block of {block_bytes} bytes, got {budget};"
            " raise kv_cache_memory_bytes or lower block_size"
        )
    return budget // block_bytes


def choose_num_swap_blocks(cache: CacheConfig, spec: DecoderSpec) -> int:
    """Blocks of the swap pool; 0: none. Less than one block is none."""
    if cache.num_swap_blocks is not None:
        return cache.num_swap_blocks
    return int(cache.swap_space * 2**30) // (spec.kv_bytes_per_token() * cache.block_size)


def _model_len(wanted: int | None, context_length: int) -> int:
    if wanted is None:
        return context_length
    if wanted > context_length:
        raise InvalidConfig(
            f"max_model_len must be at most the model's context of {context_length}, got {wanted}"
        )
    return wanted
