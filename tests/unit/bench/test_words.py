# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
import random

import pytest

from fakes import ByteTokenizer
from octavo.bench.http_client import HttpClient, Target
from octavo.bench.http_reply import BadReply
from octavo.bench.words import ServerCounter, TokenizerCounter, WordCounter, Writer
from scripted_server import ScriptedServer, reply, scripted


class TwoPerLongWord:
    """Counts as a real vocabulary does: a start token, and some words are two tokens."""

    name = "a fake"

    def __init__(self) -> None:
        self.num_calls = 0

    async def count(self, text: str) -> int:
        self.num_calls += 1
        return 1 + sum(1 + (len(word) > 5) for word in text.split())


class Stubborn:
    """No text has the wanted length."""

    name = "a fake"

    async def count(self, text: str) -> int:
        return 2 * len(text.split())


def write(counter, num_tokens: int, seed: int = 1, prefix: list[str] | None = None):
    return asyncio.run(Writer(counter).write(random.Random(seed), num_tokens, prefix))


@pytest.mark.parametrize("num_tokens", [4, 10, 500])
def test_a_text_has_the_wanted_tokens_up_to_one(num_tokens):
    """The last word may be two tokens, which no correction can split."""
    counter = TwoPerLongWord()
    text, count = write(counter, num_tokens)
    assert abs(count - num_tokens) <= 1
    assert count == asyncio.run(counter.count(text))


def test_words_are_counted_where_nobody_counts():
    text, count = write(WordCounter(), 12)
    assert count == 12 == len(text.split())


def test_a_seed_repeats_itself():
    assert write(WordCounter(), 30, seed=2) == write(WordCounter(), 30, seed=2)
    assert write(WordCounter(), 30, seed=2) != write(WordCounter(), 30, seed=3)


def test_the_nearest_is_taken_where_nothing_fits():
    text, count = write(Stubborn(), 7)
    assert count in (6, 8)
    assert count == 2 * len(text.split())


def test_a_prefix_is_kept_and_only_the_end_is_fitted():
    prefix = ["shared", "beginning"] * 10
    for counter in (WordCounter(), TwoPerLongWord()):
        text, _ = write(counter, 60, prefix=prefix)
        assert text.startswith(" ".join(prefix))


def test_a_tokenizer_counts_with_its_start_token():
    tokenizer = ByteTokenizer()
    counter = TokenizerCounter(tokenizer, "bytes")
    assert asyncio.run(counter.count("abc")) == len(tokenizer.encode("abc"))


NOT_FOUND = reply(b'{"detail": "Not Found"}', 404)


def count_with(server: ScriptedServer, *texts: str) -> list[int] | None:
    """The counts of ``texts``, or None if the server cannot count."""

    async def main() -> list[int] | None:
        client = HttpClient(Target.parse(server.url))
        try:
            counter = await ServerCounter.find(client, "m")
            return None if counter is None else [await counter.count(text) for text in texts]
        finally:
            client.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("replies", "path", "field"),
    [
        ([b'{"count": 3, "tokens": [1, 2, 3]}', b'{"count": 9}'], b"/tokenize", "prompt"),
        ([b'{"tokens": []}', b'{"tokens": [1, 2, 3]}', b'{"tokens": [1, 2, 3, 4, 5, 6, 7, 8, 9]}'],
         b"/tokenize", "content"),
        ([b"{}", b"[]", b'{"count": 3}', b'{"count": 9}'], b"/extras/tokenize/count", "input"),
    ],
)  # fmt: skip
def test_servers_count_in_their_own_ways(replies, path, field):
    with scripted([reply(one) for one in replies]) as server:
        assert count_with(server, "a text") == [9]
    assert server.requests[-1].split()[1] == path
    assert json.loads(server.requests[-1].split(b"\r\n\r\n", 1)[1])[field] == "a text"


def test_a_server_that_cannot_count_is_noticed():
    with scripted([NOT_FOUND] * 3) as server:
        assert count_with(server) is None
    with scripted([reply(b'{"count": true}'), reply(b"?"), b"x"], closes=[2]) as server:
        assert count_with(server) is None


def test_a_server_that_stops_counting_is_an_error():
    with (
        scripted([reply(b'{"count": 3}'), NOT_FOUND]) as server,
        pytest.raises(BadReply, match="/tokenize gives no count"),
    ):
        count_with(server, "a text")
