# SPDX-License-Identifier: Apache-2.0
"""A server that answers each connection's requests with given bytes, for clients under test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class ScriptedServer:
    """Gives the n-th request the n-th of ``replies``, whichever connection it comes on, and closes
    the connection after each whose index is in ``closes``. Requests are kept in ``requests``."""

    def __init__(self, replies: Sequence[bytes], closes: Sequence[int] = ()) -> None:
        self.replies = list(replies)
        self.closes = set(closes)
        self.requests: list[bytes] = []
        self.num_connections = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed: the end
                return
            self.num_connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _talk(self, connection: socket.socket) -> None:
        with connection:
            while request := _read_request(connection):
                with self._lock:
                    idx = len(self.requests)
                    self.requests.append(request)
                if idx >= len(self.replies):
                    return
                connection.sendall(self.replies[idx])
                if idx in self.closes:
                    return


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if b"content-length" in line.lower()
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def scripted(replies: Sequence[bytes], closes: Sequence[int] = ()) -> Iterator[ScriptedServer]:
    server = ScriptedServer(replies, closes)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(timeout=10)


def reply(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
