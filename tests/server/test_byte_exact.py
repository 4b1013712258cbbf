# SPDX-License-Identifier: Apache-2.0
"""What comes in reaches the model as it is, and what the model says comes out as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serverkit import ReciteEngine, connect, events_of, make_app, running
from test_real_engine import TemplateTokenizer
from wirecheck import events

from enginekit import make_engine
from fakes import ByteTokenizer, EchoExecutor
from octavo.engine.async_engine import AsyncEngine
from octavo.server import sse
from octavo.server.app import build_app

BLNS = json.loads((Path(__file__).parents[1] / "data/tokenizers/blns.json").read_text())
END = 257
LENGTH_MAX = 60  # characters: a stream has an event for each


def test_a_reader_that_knows_more_ends_of_lines_is_not_misled():
    for char in "\x85\u2028\u2029\x0b\x0c\x1c":
        text = sse.event({"text": f"a{char}b"}).decode()
        assert len(text.splitlines()) == 2
        assert json.loads(text[6:]) == {"text": f"a{char}b"}


@pytest.mark.anyio
async def test_naughty_strings_pass_through_every_endpoint():
    engine = ReciteEngine()
    async with connect(make_app(engine), checks=False) as client:
        for text in BLNS:
            await check_tokens(client, text)
        for text in [*BLNS[::7], *(text for text in BLNS if not text.isascii())]:
            engine.answer = text[:LENGTH_MAX].encode()
            await check_answers(client, engine, text[:LENGTH_MAX])


async def check_tokens(client: httpx.AsyncClient, text: str) -> None:
    body = {"prompt": text, "add_special_tokens": False}
    tokens = (await client.post("/tokenize", json=body)).json()["tokens"]
    assert (await client.post("/detokenize", json={"tokens": tokens})).json()["prompt"] == text


async def check_answers(client: httpx.AsyncClient, engine: ReciteEngine, text: str) -> None:
    messages = [{"role": "user", "content": text}]
    prompt = f"user: {text}\nassistant: ".encode()
    chat = {"messages": messages}
    whole = (await client.post("/v1/chat/completions", json=chat)).json()
    assert whole["choices"][0]["message"]["content"] == text
    stream = await client.post("/v1/chat/completions", json={**chat, "stream": True})
    deltas = [event["choices"][0]["delta"] for event in events_of(stream.text)]
    assert "".join(delta.get("content", "") for delta in deltas) == text
    stream = await client.post("/v1/responses", json={"input": text, "stream": True})
    found = events(stream.content)
    assert found[-1]["response"]["output"][0]["content"][0]["text"] == text
    assert "".join(e["delta"] for e in found if e["type"].endswith("text.delta")) == text
    body = {"model": "recital", "messages": messages, "max_tokens": 1000}
    message = (await client.post("/v1/messages", json=body)).json()
    assert message["content"] == [{"type": "text", "text": text}]
    assert {bytes(request.prompt_token_ids) for request in engine.requests} == {prompt}
    engine.requests.clear()


def recite(tokens: Sequence[int], sampling: object) -> int:
    """The rule of a model that says again what stands before the first zero byte."""
    length = tokens.index(0)
    said = len(tokens) - length - 1
    return tokens[said] if said < length else END


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    executor = EchoExecutor(rule=recite, num_blocks=512)
    engine = AsyncEngine(make_engine(executor, max_model_len=512))
    engine.start()
    app = build_app(engine, TemplateTokenizer(ByteTokenizer()), model_name="echo")
    try:
        with running(app) as url, httpx.Client(base_url=url, trust_env=False) as client:
            yield client
    finally:
        engine.shutdown()


CHARACTERS = st.sampled_from("ab 🌍👩\u200d👧e\u0301\r\n") | st.characters(codec="utf-8")
TEXTS = st.text(CHARACTERS, max_size=24)
TEXTS = TEXTS.map(lambda text: text.replace("\0", ""))


@st.composite
def texts_and_stops(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Stops are cut out of the text, so that some match, overlap and begin alike."""
    text = draw(TEXTS.filter(bool))
    stops = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text) - 1))
        stops.append(text[start : start + draw(st.integers(1, 4))])
    return text, stops


def expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The stop that ends first cuts the text, of several the longest; read a character a time."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(texts_and_stops())
def test_stop_strings_and_emoji_however_the_tokens_cut_them(client, asked):
    text, stops = asked
    body = {"prompt": text + "\0", "stop": stops, "max_tokens": 200, "temperature": 0}
    whole = client.post("/v1/completions", json=body).json()["choices"][0]
    chunks = events_of(client.post("/v1/completions", json={**body, "stream": True}).text)
    streamed = "".join(event["choices"][0]["text"] for event in chunks)
    assert (whole["text"], whole["stop_reason"]) == expected(text, stops)
    assert streamed == whole["text"]
    assert all("\ufffd" not in event["choices"][0]["text"] for event in chunks) or "\ufffd" in text


def test_the_oracle_of_stops():
    assert expected("abc", ["c", "bc"]) == ("a", "bc")
    assert expected("abcabd", ["abd", "ca"]) == ("ab", "ca")
    assert expected("abc", []) == ("abc", None)
