# SPDX-License-Identifier: Apache-2.0
"""What ``octavo bench serve`` itself costs per chunk, as CPU time of its thread.

A server in another thread sends one streamed answer, a chunk at a time and slowly enough that each
is a system call and a callback of its own, which is the dearest case. CPU time, not wall time, so
that a busy machine matters less.

    python benchmarks/bench_client.py
    python benchmarks/bench_client.py --smoke
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import threading
import time

from octavo.bench.answers import AnswerReader
from octavo.bench.http_client import HttpClient, Target
from octavo.bench.http_reply import ReplyReader
from octavo.bench.records import Record

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
PAUSE_S = 0.0002


def chunk(finish_reason: str | None = None) -> bytes:
    """As octavo's server sends it for one token of a chat."""
    document = {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1_800_000_000,
        "model": "smollm2-135m",
        "choices": [
            {
                "index": 0,
                "delta": {"content": " token"},
                "logprobs": None,
                "finish_reason": finish_reason,
            }
        ],
    }
    event = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


def pieces(num_chunks: int) -> list[bytes]:
    return [chunk()] * (num_chunks - 1) + [chunk("length")]


def reading_us(num_chunks: int) -> float:
    """Per chunk, of parsing and recording alone: no socket, no loop."""
    record = Record(0.0, 0.0, 1)
    reply, answer = ReplyReader(), AnswerReader(record)
    reply.feed(HEAD)
    start_s = time.thread_time()
    for piece in pieces(num_chunks):
        answer.take(time.perf_counter(), reply.feed(piece))
    used_s = time.thread_time() - start_s
    assert len(record.token_times_s) == num_chunks
    return used_s / num_chunks * 1e6


def whole_us(num_chunks: int) -> float:
    """Per chunk, with the system call and the event loop."""
    record = Record(0.0, 0.0, 1)
    answer = AnswerReader(record)
    num_callbacks = 0

    def take(now_s: float, body: bytes) -> None:
        nonlocal num_callbacks
        num_callbacks += 1
        answer.take(now_s, body)

    async def ask(port: int) -> None:
        client = HttpClient(Target("127.0.0.1", port))
        await client.send("POST", "/v1/chat/completions", b"{}", take)
        client.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, num_chunks))
        thread.start()
        start_s = time.thread_time()
        asyncio.run(ask(listener.getsockname()[1]))
        used_s = time.thread_time() - start_s
        thread.join()
    assert len(record.token_times_s) == num_chunks
    return used_s / num_callbacks * 1e6


def serve(listener: socket.socket, num_chunks: int) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.recv(65536)
        connection.sendall(HEAD)
        for piece in pieces(num_chunks):
            connection.sendall(piece)
            time.sleep(PAUSE_S)
        connection.sendall(END)
        connection.recv(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few chunks")
    num_chunks = 200 if parser.parse_args().smoke else 5000
    for title, measure in (("reading", reading_us), ("reading and waiting", whole_us)):
        used = sorted(measure(num_chunks) for _ in range(5))
        print(
            f"{title}: {used[2]:.1f} us of CPU per chunk "
            f"(median of 5 answers of {num_chunks} chunks; {used[0]:.1f} to {used[-1]:.1f})"
        )


if __name__ == "__main__":
    main()
