# SPDX-License-Identifier: Apache-2.0
"""Text of a wanted number of tokens: random words, counted by whoever can count.

Words come from one list of short English words, most of which are a single token in most
vocabularies; a counter corrects the rest.
"""

from __future__ import annotations

import random
from typing import Protocol

from octavo.bench.http_client import HttpClient
from octavo.bench.http_reply import BadReply
from octavo.types.ports import Tokenizer

NUM_CORRECTIONS = 8

_WORDS = """
    able above across after again against age air all along also always among animal answer any
    apple area arm around ask away back ball bank base bear beat beautiful because bed before began
    behind best better between big bird black blood blue board boat body book both bottom box boy
    branch bread break bridge bright bring brother brought brown build burn business busy buy call
    came camp car care carry case catch cause cell center century certain chair chance change
    chart check child choose circle city class clean clear climb clock close cloud coast cold color
    common company compare complete condition consider control cook cool copy corn corner correct
    cost cotton country course cover cross crowd cry current cut dance dark daughter day dead deal
    dear death decide deep degree desert design develop differ direct discuss distance divide doctor
    dog dollar door double down draw dream dress drink drive drop dry during each early earth ease
    east eat edge effect egg eight either electric element else end energy engine enough enter
    equal evening event ever every exact example except excite exercise expect experience eye face
    fact fall family famous far farm fast father favor fear feed feel feet field fight figure fill
    final find fine finger finish fire first fish five flat floor flow flower fly follow food foot
    force foreign forest form forward four free fresh friend front fruit full fun game garden gas
""".split()


class Counter(Protocol):
    """How many tokens a text is as a prompt. ``name`` says how that is known."""

    name: str

    async def count(self, text: str) -> int: ...


class WordCounter:
    """Where nobody can count: one token per word, which is some percent off."""

    name = "words: token numbers of prompts are approximate"

    async def count(self, text: str) -> int:
        return len(text.split())


class TokenizerCounter:
    def __init__(self, tokenizer: Tokenizer, name: str) -> None:
        self._tokenizer = tokenizer
        self.name = name

    async def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text))


class ServerCounter:
    """Asks the server; ``find`` one to know whether it answers."""

    # Path, field of the text: vLLM's and octavo's, llama.cpp's, llama-cpp-python's.
    _WAYS = (
        ("/tokenize", "prompt"),
        ("/tokenize", "content"),
        ("/extras/tokenize/count", "input"),
    )

    def __init__(self, client: HttpClient, model: str, way: tuple[str, str]) -> None:
        self._client = client
        self._model = model
        self._path, self._field = way
        self.name = f"the server's {self._path}"

    @classmethod
    async def find(cls, client: HttpClient, model: str) -> ServerCounter | None:
        for way in cls._WAYS:
            counter = cls(client, model, way)
            try:
                if await counter.count("one two three") >= 3:
                    return counter
            except (BadReply, OSError):
                continue
        return None

    async def count(self, text: str) -> int:
        """Raises ``BadReply`` or ``OSError``."""
        body: dict[str, object] = {"model": self._model, self._field: text}
        if self._field == "content":
            body["add_special"] = True
        _, document = await self._client.fetch("POST", self._path, body)
        if isinstance(document, dict):
            count, tokens = document.get("count"), document.get("tokens")
            if type(count) is int:
                return count
            if isinstance(tokens, list):
                return len(tokens)
        raise BadReply(f"the server's {self._path} gives no count")


class Writer:
    """Writes texts; the same seeds give the same words, and as many of them after counting."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def words(self, rng: random.Random, count: int) -> list[str]:
        return rng.choices(_WORDS, k=count)

    async def write(
        self, rng: random.Random, num_tokens: int, prefix: list[str] | None = None
    ) -> tuple[str, int]:
        """A text that begins with ``prefix`` and its count, which is ``num_tokens`` or, where words
        cannot be fitted, near it. Only its end is corrected."""
        words = list(prefix or ())
        tried: dict[int, tuple[int, str]] = {}  # by number of words: count and text
        length = max(num_tokens, 1)
        while length not in tried and len(tried) < NUM_CORRECTIONS:
            words += self.words(rng, max(length - len(words), 0))
            text = " ".join(words[:length])
            count = await self.counter.count(text)
            tried[length] = count, text
            missing = num_tokens - count
            step = round(missing * length / max(count, length))
            length = max(length + (step or (missing > 0) - (missing < 0)), 1)
        count, text = min(tried.values(), key=lambda one: abs(one[0] - num_tokens))
        return text, count
