# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import time

import pytest

from octavo.bench.http_client import HttpClient, Target, allow_many_connections
from octavo.bench.http_reply import BadReply
from octavo.types.errors import InvalidConfig
from scripted_server import reply, scripted


def fetch_all(url: str, count: int) -> list[object]:
    async def main() -> list[object]:
        client = HttpClient(Target.parse(url, api_key="k"))
        try:
            return [await client.fetch("POST", "/x", {"n": n}) for n in range(count)]
        finally:
            client.close()

    return asyncio.run(main())


def test_a_connection_is_used_again():
    with scripted([reply(b"1"), reply(b"2"), reply(b"nonsense")]) as server:
        assert fetch_all(server.url, 3) == [(200, 1), (200, 2), (200, None)]
        assert server.num_connections == 1
    assert [request.rsplit(b"\r\n", 1)[1] for request in server.requests] == [
        b'{"n": 0}',
        b'{"n": 1}',
        b'{"n": 2}',
    ]
    head = server.requests[0].decode()
    assert head.startswith("POST /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "Authorization: Bearer k\r\n" in head


def test_a_connection_that_was_closed_meanwhile_is_replaced():
    with scripted([reply(b"1"), reply(b"2"), reply(b"3")], closes=[0, 1]) as server:
        assert fetch_all(server.url, 3) == [(200, 1), (200, 2), (200, 3)]
        assert server.num_connections == 3


def test_a_reply_without_a_length_ends_with_the_connection():
    with scripted([b"HTTP/1.1 200 OK\r\n\r\n[5]"], closes=[0]) as server:
        assert fetch_all(server.url, 1) == [(200, [5])]


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", b"hi\r\n\r\n"]
)
def test_half_a_reply_is_an_error(data):
    with scripted([data], closes=[0]) as server, pytest.raises(BadReply):
        fetch_all(server.url, 1)


def test_nobody_there_is_an_error():
    with scripted([]) as server:
        url = server.url
    with pytest.raises(OSError, match="Connect call failed"):
        fetch_all(url, 1)


def test_times_are_taken_when_bytes_come():
    async def main(url: str) -> list[float]:
        client, times = HttpClient(Target.parse(url)), []
        await client.send("GET", "/", b"", lambda now_s, _: times.append(now_s))
        client.close()
        return times

    before_s = time.perf_counter()
    with scripted([reply(b"1")]) as server:
        (time_s,) = asyncio.run(main(server.url))
    assert before_s < time_s < time.perf_counter()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://a:8000", "http://a:8000"),
        ("a:8000", "http://a:8000"),
        ("http://a:8000/v1", "http://a:8000"),
        ("http://a/proxy/v1/", "http://a:80/proxy"),
        ("https://a.example", "https://a.example:443"),
        ("http://[::1]:5", "http://[::1]:5"),
    ],
)
def test_addresses(url, shown):
    assert Target.parse(url).url == shown


@pytest.mark.parametrize(
    "url",
    ["ftp://a", "http://", "http://a:x", "http://a:99999", "http://a/b c", "http://ä.example"],
)
def test_bad_addresses_are_refused(url):
    with pytest.raises(InvalidConfig, match="--base-url"):
        Target.parse(url)


@pytest.mark.parametrize("key", ["a\r\nX: 1", "ä", "a\x00"])
def test_a_key_cannot_smuggle_headers_and_is_not_shown(key):
    with pytest.raises(InvalidConfig, match="--api-key") as refusal:
        Target.parse("http://a", api_key=key)
    assert key not in str(refusal.value)


def test_the_limit_of_open_files_never_shrinks():
    import resource

    before, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_many_connections()
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= before
