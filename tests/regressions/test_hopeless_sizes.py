# SPDX-License-Identifier: Apache-2.0
"""What cannot fit is refused before it costs anything: texts before they are cut into tokens, KV
caches before anything is built for each of their blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from serverkit import MAX_MODEL_LEN, ByteTokenizer, ReciteEngine, connect, make_app

from llmkit import make_llm
from octavo.assemble import start_engine
from octavo.engine.admission import Admission
from octavo.formats.gguf import GgufFile
from octavo.types.config import CacheConfig, EngineConfig
from octavo.types.errors import InvalidConfig, PromptTooLong
from tiny_gguf import tiny_llama


class WatchedTokenizer(ByteTokenizer):
    """Its longest token has 8 bytes, and it remembers what it had to cut."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.lengths.append(len(text))
        return super().encode(text, add_special_tokens=add_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        return b"longest!" if token_id == 255 else super().token_bytes(token_id)

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        return str(messages[0]["content"])


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_hopeless_text_is_not_tokenised(path: str) -> None:
    engine = ReciteEngine()
    engine.tokenizer = tokenizer = WatchedTokenizer()
    engine.admission = Admission(tokenizer, engine.admission.limits)
    limit = 8 * (MAX_MODEL_LEN + 1)

    async def ask(text: str) -> dict[str, object]:
        body: dict[str, object] = {"prompt": text}
        if "chat" in path:
            body = {"messages": [{"role": "user", "content": text}]}
        async with connect(make_app(engine)) as client:
            reply = await client.post(path, json=body)
        assert reply.status_code == 400
        error: dict[str, object] = reply.json()["error"]
        return error

    for text in ("a" * limit, "é" * (limit // 2)):
        error = asyncio.run(ask(text))
        assert error["code"] == "context_length_exceeded"
        assert tokenizer.lengths == []
    asyncio.run(ask("a" * (limit - 1)))  # it might fit, so it is counted exactly
    assert tokenizer.lengths == [limit - 1]


@pytest.mark.parametrize(
    "cache",
    [
        CacheConfig(num_blocks=2**31 - 1),
        CacheConfig(kv_cache_memory_bytes=2**45),
        CacheConfig(kv_cache_memory_bytes=2**50),
    ],
)
def test_a_kv_cache_larger_than_the_machine_is_refused(cache: CacheConfig) -> None:
    file = GgufFile("tiny.gguf", memoryview(tiny_llama().build()))
    with pytest.raises(InvalidConfig, match="KV cache"):
        start_engine(file, EngineConfig(cache=cache), model_name="tiny")


def test_a_hopeless_text_is_not_tokenised_offline_either() -> None:
    tokenizer = WatchedTokenizer()
    llm, assembled = make_llm(tokenizer=tokenizer, max_model_len=64)
    assembled.engine.admission = Admission(tokenizer, assembled.engine.admission.limits)
    text = "a" * (8 * 65)
    with llm:
        for ask in (llm.generate, llm.stream, llm.enqueue):
            with pytest.raises(PromptTooLong, match="more than 65 tokens"):
                ask(text)
        with pytest.raises(PromptTooLong, match="more than 65 tokens"):
            llm.chat([{"role": "user", "content": text}])
        assert tokenizer.lengths == []
        with pytest.raises(PromptTooLong, match="the prompt has 520 tokens"):  # with its BOS
            llm.generate(text[1:])
        assert tokenizer.lengths == [len(text) - 1]
