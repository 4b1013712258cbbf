# SPDX-License-Identifier: Apache-2.0
"""Settings: frozen, flat, refusing. Each field has a unit, a range and a reason.

``None`` means "choose for this machine"; ``assemble.py`` resolves it and nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.types.errors import InvalidConfig


def check_range(name: str, value: int, low: int, high: int) -> None:
    """Raise ``InvalidConfig``, with name, value and range, unless ``low <= value <= high``."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidConfig(f"{name} must be an integer in [{low}, {high}], got {value!r}")


def check_optional(name: str, value: int | None, low: int, high: int) -> None:
    if value is not None:
        check_range(name, value, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """block_size: token slots per block, a multiple of 8 in [8, 256]. Small blocks waste less of a
    sequence's last block; large ones make shorter block tables. 32 fills whole cache lines.

    kv_cache_memory_bytes: size of the KV pool, in bytes; None takes 40 % of the memory left under
    the cgroup limit after the weights. It is reserved as addresses and committed as it is touched.

    num_blocks: exact pool size instead, for tests and experiments.
    """

    block_size: int = 32
    kv_cache_memory_bytes: int | None = None
    num_blocks: int | None = None

    def __post_init__(self) -> None:
        if self.block_size % 8:
            raise InvalidConfig(f"block_size must be a multiple of 8, got {self.block_size}")
        check_range("block_size", self.block_size, 8, 256)
        check_optional("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 1, 2**50)
        check_optional("num_blocks", self.num_blocks, 1, 2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """max_num_seqs: sequences that may run at once. max_num_batched_tokens: tokens one step may
    compute; it bounds how long running sequences wait for a prefill. max_model_len: longest
    prompt plus answer; None takes the model's own context.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 512
    max_model_len: int | None = None

    def __post_init__(self) -> None:
        check_range("max_num_seqs", self.max_num_seqs, 1, 65536)
        check_range("max_num_batched_tokens", self.max_num_batched_tokens, 1, 2**20)
        check_optional("max_model_len", self.max_model_len, 1, 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """threads: compute threads; None takes the affinity mask and the cgroup quota into account.
    isa: kernel table by name; None takes the best that this machine can run. seed: source of
    the seeds of requests that bring none; None draws it from the system.
    """

    threads: int | None = None
    isa: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        check_optional("threads", self.threads, 1, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything that an engine needs beside the model's name."""

    cache: CacheConfig = CacheConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    runtime: RuntimeConfig = RuntimeConfig()
