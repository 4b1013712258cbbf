# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 replies and server-sent events, from bytes as they come. Pure; no sockets.

Only what a client of a streaming API meets: one reply per request, with a body that is chunked, of
a stated length, or ended by the connection. What it buffers is bounded.
"""

from __future__ import annotations

HEAD_BYTES_MAX = 64 * 1024
SIZE_LINE_BYTES_MAX = 1024
EVENT_BYTES_MAX = 16 * 1024 * 1024


class BadReply(Exception):
    """What came is no HTTP/1.1 reply, or was cut off. Never leaves the benchmark."""


class ReplyReader:
    """One reply. ``feed`` it until ``is_complete``, and tell it of the end with ``end``."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._pending = b""
        self._has_head = False
        self._is_chunked = False
        self._left: int | None = None  # of the body or of the chunk; None: until the end
        self._in_trailer = False

    @property
    def keeps_alive(self) -> bool:
        """Another request may follow on this connection."""
        wants = self.headers.get("connection", "").lower() != "close"
        return self.is_complete and wants and (self._is_chunked or self._left is not None)

    def feed(self, data: bytes) -> bytes:
        """The new bytes of the body. Raises ``BadReply``."""
        self._pending += data
        if not self._has_head and not self._take_head():
            return b""
        if self._is_chunked:
            return self._take_chunks()
        return self._take_plain()

    def end(self) -> None:
        """The connection has ended. Raises ``BadReply`` if the reply had not."""
        if self._has_head and not self._is_chunked and self._left is None:
            self.is_complete = True
        if not self.is_complete:
            raise BadReply("the server closed the connection before its answer was whole")

    def _take_head(self) -> bool:
        while not self._has_head:
            head, found, rest = self._pending.partition(b"\r\n\r\n")
            if not found:
                if len(self._pending) > HEAD_BYTES_MAX:
                    raise BadReply("the server's headers have no end")
                return False
            self._pending = rest
            self._read_head(head.decode("latin-1").split("\r\n"))
            self._has_head = self.status >= 200  # what is below announces another head
        return True

    def _read_head(self, lines: list[str]) -> None:
        protocol, _, status = lines[0].partition(" ")
        if not protocol.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise BadReply(f"what answers speaks no HTTP/1.1: {lines[0]!r:.80}")
        self.status = int(status[:3])
        fields = (line.partition(":") for line in lines[1:])
        self.headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        self._is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if self.status in (204, 304):
            self._left = 0
        elif length is not None and not self._is_chunked:
            if not length.isdecimal() or len(length) > 18:
                raise BadReply(f"the server sent a bad Content-Length: {length!r:.40}")
            self._left = int(length)
        if self._is_chunked:
            self._left = 0

    def _take_plain(self) -> bytes:
        body, self._pending = self._pending, b""
        if self._left is not None:
            body = body[: self._left]
            self._left -= len(body)
            self.is_complete = self._left == 0
        return body

    def _take_chunks(self) -> bytes:
        """``_left`` counts a chunk's own line end too."""
        body: list[bytes] = []
        data, at = self._pending, 0
        while not self.is_complete:
            if self._left:
                piece = data[at : at + self._left]
                body.append(piece[: max(self._left - 2, 0)])
                self._left -= len(piece)
                at += len(piece)
                if self._left:
                    break
            stop = data.find(b"\r\n", at)
            if stop < 0:
                if len(data) - at > SIZE_LINE_BYTES_MAX:
                    raise BadReply("the server sent a chunk without a size")
                break
            self._begin_chunk(data[at:stop])
            at = stop + 2
        self._pending = data[at:]
        return b"".join(body)

    def _begin_chunk(self, line: bytes) -> None:
        if self._in_trailer:
            self.is_complete = not line
            return
        try:
            size = int(line.partition(b";")[0].strip()[:16], 16)
        except ValueError:
            size = -1
        if size < 0:
            raise BadReply(f"the server sent a bad chunk size: {line!r:.40}")
        self._in_trailer = size == 0
        self._left = size + 2 if size else 0


class EventReader:
    """Server-sent events. Lines may end with LF or CRLF; fields other than data are left out."""

    def __init__(self) -> None:
        self._pending = b""
        self._data: list[bytes] = []

    def feed(self, body: bytes) -> list[bytes]:
        """The data of each event that is now whole. Raises ``BadReply`` for one without an end."""
        *lines, self._pending = (self._pending + body).split(b"\n")
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        if len(self._pending) > EVENT_BYTES_MAX or len(self._data) > EVENT_BYTES_MAX // 16:
            raise BadReply("the server sent an event without an end")
        return events
