# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments of ``LLM`` -> ``EngineConfig``, forgiving towards scripts written for vLLM.

Each name is honoured, or accepted at the values that change nothing here and refused at others, or
ignored with a warning because it tunes hardware that is not in use. An unknown name is a
``TypeError``, as for any function: a misspelt option must not pass for a set one.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import fields

from octavo.types.config import (
    CacheConfig,
    ChatConfig,
    EngineConfig,
    RuntimeConfig,
    SchedulerConfig,
)
from octavo.types.errors import InvalidConfig

# Our field for each name that has an effect.
_CACHE = {
    "num_gpu_blocks_override": "num_blocks",
    **{field.name: field.name for field in fields(CacheConfig)},
}
_SCHEDULER = {field.name: field.name for field in fields(SchedulerConfig)}
_RUNTIME = {
    "num_threads": "threads",
    **{field.name: field.name for field in fields(RuntimeConfig)},
}
_CHAT = {field.name: field.name for field in fields(ChatConfig)}

# Accepted at these values only; any other asks for something that octavo does not do, and leaving
# it out would change what the caller gets.
_FIXED: dict[str, tuple[object, ...]] = {
    "convert": (None, "auto"),
    "cpu_offload_gb": (None, 0),
    "data_parallel_size": (None, 1),
    "enable_lora": (None, False),
    "enable_prompt_embeds": (None, False),
    "hf_overrides": (None,),
    "kv_cache_dtype": (None, "auto", "float16"),
    "load_format": (None, "auto", "gguf"),
    "logits_processors": (None,),
    "logprobs_mode": (None, "raw_logprobs"),
    "pipeline_parallel_size": (None, 1),
    "pooler_config": (None,),
    "quantization": (None, "gguf"),
    "revision": (None,),
    "runner": (None, "auto", "generate"),
    "skip_tokenizer_init": (None, False),
    "speculative_config": (None,),
    "speculative_model": (None,),
    "structured_outputs_config": (None,),
    "task": (None, "auto", "generate"),
    "tensor_parallel_size": (None, 1),
    "tokenizer_mode": (None, "auto"),
    "tokenizer_revision": (None,),
}

# No effect, with the reason that the warning gives. None and False pass in silence.
_IGNORED = {
    "attention_backend": "there is one attention kernel per instruction set",
    "attention_config": "there is one attention kernel per instruction set",
    "compilation_config": "nothing is compiled at run time",
    "disable_async_output_proc": "it tunes another engine's pipeline",
    "disable_custom_all_reduce": "there is no GPU",
    "disable_log_stats": "",
    "dtype": "weights keep the types of the checkpoint",
    "enable_chunked_prefill": "prompts are always computed in chunks",
    "enforce_eager": "nothing is compiled at run time",
    "gpu_memory_utilization": "there is no GPU; set kv_cache_memory_bytes",
    "max_seq_len_to_capture": "there is no GPU",
    "num_lookahead_slots": "it tunes another engine's scheduler",
    "num_scheduler_steps": "it tunes another engine's scheduler",
    "profiler_config": "there is no profiler to set up",
    "trust_remote_code": "no code of a model is ever run",
    "use_tqdm_on_load": "",
    "use_v2_block_manager": "there is one block manager",
}


def engine_config(model: str, options: Mapping[str, object], *, stacklevel: int) -> EngineConfig:
    """The configuration that ``options`` ask for.

    Raises ``TypeError`` for an unknown name, ``InvalidConfig`` for a value that cannot be honoured.
    ``stacklevel`` is that of ``warnings.warn`` as seen from here.
    """
    fields: dict[str, dict[str, object]] = {"cache": {}, "scheduler": {}, "runtime": {}, "chat": {}}
    ignored: list[str] = []
    for name, value in options.items():
        home = _home_of(name)
        if home is not None:
            if value is not None or name == "seed":
                _put(fields, home, name, value)
        elif name == "tokenizer":
            _check_fixed(name, value, (None, model))
        elif name in _FIXED:
            _check_fixed(name, value, _FIXED[name])
        elif name in _IGNORED:
            if value not in (None, False, "auto") and _IGNORED[name]:
                ignored.append(f"{name} ({_IGNORED[name]})")
        else:
            raise TypeError(_unknown(name))
    if ignored:
        warnings.warn("no effect: " + "; ".join(ignored), UserWarning, stacklevel=stacklevel + 1)
    return EngineConfig(
        cache=CacheConfig(**fields["cache"]),  # type: ignore[arg-type]
        scheduler=SchedulerConfig(**fields["scheduler"]),  # type: ignore[arg-type]
        runtime=RuntimeConfig(**fields["runtime"]),  # type: ignore[arg-type]
        chat=ChatConfig(**fields["chat"]),  # type: ignore[arg-type]
    )


_HOMES = {"cache": _CACHE, "scheduler": _SCHEDULER, "runtime": _RUNTIME, "chat": _CHAT}


def _home_of(name: str) -> tuple[str, str] | None:
    """Which configuration a name belongs to, and the field there; None for names without effect."""
    for group, names in _HOMES.items():
        if name in names:
            return group, names[name]
    return None


def _put(
    fields: dict[str, dict[str, object]], home: tuple[str, str], name: str, value: object
) -> None:
    group, field = home
    if field in fields[group]:
        raise TypeError(f"{name} is another name of an option that is given already; give one")
    fields[group][field] = value


def _check_fixed(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        choices = " or ".join(repr(choice) for choice in allowed)
        raise InvalidConfig(f"{name}={value!r} is not supported; it must be {choices}")


def _unknown(name: str) -> str:
    known = [*_CACHE, *_SCHEDULER, *_RUNTIME, *_CHAT, *_FIXED, *_IGNORED]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"LLM() got an unexpected keyword argument {name!r}{hint}"
