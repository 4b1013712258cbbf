# SPDX-License-Identifier: Apache-2.0
"""octavo serves language models from a paged KV cache, on the machine you have.

    from octavo import LLM, SamplingParams

    llm = LLM("smollm2-135m")
    for output in llm.generate(["The capital of France is"], SamplingParams(max_tokens=8)):
        print(output.outputs[0].text)

Every name below is loaded on first use, so ``import octavo`` itself costs a few milliseconds and
loads neither the native extension nor any third-party package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.llm import LLM
    from octavo.types.beam_search_params import BeamSearchParams
    from octavo.types.config import (
        CacheConfig,
        EngineConfig,
        RuntimeConfig,
        SchedulerConfig,
    )
    from octavo.types.errors import (
        BadCheckpoint,
        CorruptState,
        EngineOverloaded,
        EngineStopped,
        InvalidConfig,
        InvalidRequest,
        ModelError,
        ModelNotFound,
        OctavoError,
        PromptTooLong,
        StepFailed,
        UnsupportedModel,
    )
    from octavo.types.outputs import (
        CompletionOutput,
        FinishReason,
        Logprob,
        RequestMetrics,
        RequestOutput,
        Timeline,
    )
    from octavo.types.request import ServiceClass, Standing
    from octavo.types.sampling_params import OnOverflow, OutputKind, SamplingParams
    from octavo.types.structured_outputs import StructuredOutputs

    __version__: str

__all__ = [  # noqa: RUF022 (plain alphabetical order)
    "BadCheckpoint",
    "BeamSearchParams",
    "CacheConfig",
    "CompletionOutput",
    "CorruptState",
    "EngineConfig",
    "EngineOverloaded",
    "EngineStopped",
    "FinishReason",
    "InvalidConfig",
    "InvalidRequest",
    "LLM",
    "Logprob",
    "ModelError",
    "ModelNotFound",
    "OctavoError",
    "OnOverflow",
    "OutputKind",
    "PromptTooLong",
    "RequestMetrics",
    "RequestOutput",
    "RuntimeConfig",
    "SamplingParams",
    "SchedulerConfig",
    "ServiceClass",
    "Standing",
    "StepFailed",
    "StructuredOutputs",
    "Timeline",
    "UnsupportedModel",
    "__version__",
]

_HOMES = {
    "octavo.llm": ("LLM",),
    "octavo.types.beam_search_params": ("BeamSearchParams",),
    "octavo.types.config": ("CacheConfig", "EngineConfig", "RuntimeConfig", "SchedulerConfig"),
    "octavo.types.errors": (
        "BadCheckpoint",
        "CorruptState",
        "EngineOverloaded",
        "EngineStopped",
        "InvalidConfig",
        "InvalidRequest",
        "ModelError",
        "ModelNotFound",
        "OctavoError",
        "PromptTooLong",
        "StepFailed",
        "UnsupportedModel",
    ),
    "octavo.types.outputs": (
        "CompletionOutput",
        "FinishReason",
        "Logprob",
        "RequestMetrics",
        "RequestOutput",
        "Timeline",
    ),
    "octavo.types.request": ("ServiceClass", "Standing"),
    "octavo.types.sampling_params": ("OnOverflow", "OutputKind", "SamplingParams"),
    "octavo.types.structured_outputs": ("StructuredOutputs",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    value: object
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value = version("octavo")
        except PackageNotFoundError:  # used from a source tree, never installed
            value = "0+unknown"
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    globals()[name] = value  # the next access is an ordinary one
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
