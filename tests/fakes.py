# SPDX-License-Identifier: Apache-2.0
"""Small, complete stand-ins for the ports: a clock, a tokenizer, a worker that trusts nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echo import EchoExecutor
from echo_parts import VOCAB_SIZE, PlanError, checksum_rule, expected_tokens
from octavo.types.errors import InvalidRequest

__all__ = [
    "ByteTokenizer",
    "EchoExecutor",
    "ManualClock",
    "PlanError",
    "checksum_rule",
    "expected_tokens",
]


class ManualClock:
    """Shows what it is told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class ByteTokenizer:
    """Ids 0-255 are bytes; 256 begins, 257 ends a sequence, 258 ends a turn."""

    vocab_size = VOCAB_SIZE
    bos_token_id = 256
    eos_token_id = 257
    stop_token_ids = frozenset({257, 258})
    chat_template = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        kept = [t for t in token_ids if not (skip_special_tokens and self.is_special(t))]
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else f"<{token_id}>".encode()

    def is_special(self, token_id: int) -> bool:
        return token_id >= 256

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        raise InvalidRequest("the byte tokenizer has no chat template")
