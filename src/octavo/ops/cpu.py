# SPDX-License-Identifier: Apache-2.0
"""What this machine can run, as the native core sees it."""

from __future__ import annotations

from octavo import _native


def cpu_features() -> tuple[str, ...]:
    """Instruction sets that the CPU has and the operating system saves the registers of."""
    return tuple(_native.cpu_features())


def compiled_kernels() -> tuple[str, ...]:
    """Names of every kernel table in this build, best first; the last is ``scalar``."""
    return tuple(_native.kernel_names(runnable_only=False))


def runnable_kernels() -> tuple[str, ...]:
    """The tables that can run here, best first."""
    return tuple(_native.kernel_names(runnable_only=True))


def selected_kernel(forced: str | None = None) -> str:
    """The table that a decoder would use. Raises ValueError for a name that cannot run here."""
    return _native.selected_kernel(forced or None)


def is_supported_type(ggml_type: int) -> bool:
    """Whether matrices of this GGUF tensor type can be loaded."""
    return _native.is_supported(ggml_type)


def dequantize_row(ggml_type: int, cols: int, data: memoryview) -> list[float]:
    """One row of a matrix as numbers: the plain definition of its format. Slow, for tools."""
    return _native.dequantize_row(ggml_type, cols, data)
