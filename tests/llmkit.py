# SPDX-License-Identifier: Apache-2.0
"""An ``LLM`` over a real engine and a fake worker: offline and terminal code without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from enginekit import MAX_MODEL_LEN, make_engine
from fakes import ByteTokenizer, EchoExecutor
from octavo.engine.engine import Engine
from octavo.llm import LLM
from octavo.types.config import ChatConfig
from octavo.types.ports import Tokenizer
from octavo.types.step import RowSampling


class ChatTokenizer(ByteTokenizer):
    """Bytes, with the plainest chat template: ``[role]content`` and at the end ``[assistant]``."""

    chat_template = "[role]content"

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        text = "".join(f"[{message['role']}]{message['content']}" for message in messages)
        return text + ("[assistant]" if add_generation_prompt else "")


@dataclass
class FakeAssembled:
    engine: Engine
    tokenizer: Tokenizer
    model_name: str = "fake"
    chat: ChatConfig = ChatConfig()  # noqa: RUF009 (frozen)
    num_closes: int = 0

    def close(self) -> None:
        self.num_closes += 1
        self.engine.close()


def letters(tokens: Sequence[int], sampling: RowSampling) -> int:
    """a, b, c, ...: the letter tells the position of the token."""
    return ord("a") + len(tokens) % 26


def text_after(num_prompt_tokens: int, num_tokens: int) -> str:
    """What ``letters`` answers to a prompt of that length."""
    return "".join(chr(ord("a") + (num_prompt_tokens + idx) % 26) for idx in range(num_tokens))


def make_llm(
    *,
    tokenizer: Tokenizer | None = None,
    gate: Callable[[], None] = lambda: None,
    max_model_len: int = MAX_MODEL_LEN,
    fail_steps: Sequence[int] = (),
) -> tuple[LLM, FakeAssembled]:
    executor = EchoExecutor(rule=letters, gate=gate)
    executor.fail_steps.update(fail_steps)
    engine = make_engine(executor, max_model_len=max_model_len)
    assembled = FakeAssembled(engine, tokenizer or ChatTokenizer())
    return LLM.from_assembled(assembled), assembled
