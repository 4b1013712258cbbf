# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from operatorkit import busy_engine, served

from octavo.cli.client import NoAnswer, fetch, quote


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """A server that gives one reply, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def test_no_server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NoAnswer, match=f"no server answers at http://127.0.0.1:{port}: .*--url"):
        fetch(f"http://127.0.0.1:{port}", "/load")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "no octavo server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe", "no octavo server"),
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 2\r\n\r\nhi", "status 502; is it octavo"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n[]", "status 404; is it octavo"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "no server answers"),
        (b"", "no server answers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "no server answers"),
    ],
)
def test_what_is_no_octavo(reply, message):
    with answering(reply) as url, pytest.raises(NoAnswer, match=message):
        fetch(url, "/load")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1"])
def test_other_schemes_are_not_followed(url):
    with pytest.raises(NoAnswer, match="no address of a server"):
        fetch(url, "/load")


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with served(busy_engine()) as url:
        assert fetch(url + "/", "/load")["num_running"] == 1


def test_an_id_is_one_segment():
    assert quote("a/b?c#d") == "a%2Fb%3Fc%23d"
