# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import pytest

from octavo.bench import http_reply
from octavo.bench.http_reply import BadReply, EventReader, ReplyReader

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = b"data: {}\n\ndata: [DONE]\n\n"


def chunked(*pieces: bytes, trailer: bytes = b"") -> bytes:
    framed = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return CHUNKED + framed + b"0\r\n" + trailer + b"\r\n"


def read(data: bytes, cuts: list[int]) -> tuple[ReplyReader, bytes]:
    reader, body, before = ReplyReader(), b"", 0
    for cut in [*sorted(cuts), len(data)]:
        body += reader.feed(data[before:cut])
        before = cut
    return reader, body


@pytest.mark.parametrize(
    "data",
    [
        chunked(BODY),
        chunked(BODY[:7], BODY[7:], trailer=b"X-Sum: 1\r\n"),
        chunked(*(BODY[idx : idx + 1] for idx in range(len(BODY)))),
        chunked(BODY).replace(b"18\r\n", b"18;name=value\r\n", 1),
        HEAD + b"content-length: 24\r\n\r\n" + BODY,
        b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: 24\r\n\r\n" + BODY,
    ],
)
def test_a_body_is_the_same_however_the_bytes_are_cut(data):
    assert len(BODY) == 0x18 == 24
    rng = random.Random(1)
    every = list(range(len(data)))
    for cuts in [[], every, *(rng.sample(every, 5) for _ in range(50))]:
        reader, body = read(data, cuts)
        assert (body, reader.status, reader.is_complete) == (BODY, 200, True)
        assert reader.keeps_alive


def test_a_body_may_end_with_the_connection():
    reader, body = read(HEAD + b"\r\n" + BODY, [30])
    assert (body, reader.is_complete) == (BODY, False)
    reader.end()
    assert reader.is_complete
    assert not reader.keeps_alive


def test_a_server_may_wish_to_close():
    reader, _ = read(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nab", [])
    assert reader.is_complete
    assert not reader.keeps_alive


@pytest.mark.parametrize("num_bytes", [0, 10, len(CHUNKED), len(chunked(BODY)) - 3])
def test_a_reply_that_is_cut_off_is_noticed(num_bytes):
    reader, _ = read(chunked(BODY)[:num_bytes], [])
    with pytest.raises(BadReply, match="before its answer was whole"):
        reader.end()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "no HTTP"),
        (HEAD + b"Content-Length: -5\r\n\r\n", "Content-Length"),
        (HEAD + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n", "Content-Length"),
        (CHUNKED + b"xyz\r\n", "chunk size"),
        (CHUNKED + b"-5\r\n", "chunk size"),
        (CHUNKED + b"1" * 5000, "without a size"),
        (HEAD + b"x" * 100_000, "no end"),
    ],
)
def test_hostile_bytes_are_refused(data, said):
    with pytest.raises(BadReply, match=said):
        ReplyReader().feed(data)


def test_events_are_the_same_however_the_bytes_are_cut():
    text = b': hello\n\ndata: {"a": 1}\n\nid: 3\r\ndata:two\r\ndata: lines\r\n\r\ndata: [DONE]\n\n'
    wanted = [b'{"a": 1}', b"two\nlines", b"[DONE]"]
    for step in (1, 2, 3, 7, len(text)):
        reader, found = EventReader(), []
        for begin in range(0, len(text), step):
            found += reader.feed(text[begin : begin + step])
        assert found == wanted


def test_an_event_that_does_not_end_is_refused(monkeypatch):
    monkeypatch.setattr(http_reply, "EVENT_BYTES_MAX", 1000)
    reader = EventReader()
    reader.feed(b"data: " + b"x" * 900)
    with pytest.raises(BadReply, match="without an end"):
        reader.feed(b"x" * 200)
