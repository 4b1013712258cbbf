# SPDX-License-Identifier: Apache-2.0
"""Running the application: a socket, a loop, and an orderly end on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from octavo.server.lifecycle import DRAIN_S, Lifecycle
from octavo.types.config import check_range
from octavo.types.errors import InvalidConfig

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"  # other machines are let in by asking for it
PORT = 8000

# Longer than the pools of usual clients keep an idle connection, so that they close it and not we:
# a server that closes first races with the client's next request.
KEEP_ALIVE_S = 75

# After the aborts, streams still have to write their last event.
LAST_WORDS_S = 5


def bind(host: str = HOST, port: int = PORT) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises ``InvalidConfig`` when the address is taken.

    Cheap: bind before a model is loaded, and a mistake in the port costs nothing.
    """
    check_range("port", port, 0, 65535)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidConfig(f"cannot listen on {host}:{port}: {error}") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        message = f"cannot listen on {host}:{port}: {reason}; choose another with --host or --port"
        raise InvalidConfig(message) from None
    return sock


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(
    app: FastAPI,
    host: str = HOST,
    port: int = PORT,
    *,
    sock: socket.socket | None = None,
    drain_s: float = DRAIN_S,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain; returns when the last answer is out.

    ``sock``, from ``bind``, takes the place of host and port. Running requests get ``drain_s``
    seconds to finish; the rest ends with an error event. A second SIGINT ends all at once so, and a
    third cuts the connections. Blocks; logs and prints nothing.
    """
    with contextlib.suppress(asyncio.CancelledError):  # the third SIGINT: uvicorn lets go of all
        asyncio.run(serve_async(app, sock or bind(host, port), drain_s=drain_s))


async def serve_async(app: FastAPI, sock: socket.socket, *, drain_s: float = DRAIN_S) -> None:
    """The same inside a running loop. Handles signals only in the main thread."""
    await make_server(app, drain_s=drain_s).serve(sockets=[sock])


def make_server(app: FastAPI, *, drain_s: float = DRAIN_S) -> uvicorn.Server:
    """A server that has not started; setting ``should_exit`` ends it as SIGTERM would."""
    config = uvicorn.Config(
        app,
        log_config=None,  # handlers and formats are the program's choice
        access_log=False,  # the endpoints log what they did, and what it cost
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(drain_s) + LAST_WORDS_S,
    )
    return DrainingServer(config, app.state.lifecycle, drain_s)


class DrainingServer(uvicorn.Server):
    """uvicorn, with a drain before the end, and an exit status that says that all went well."""

    def __init__(self, config: uvicorn.Config, lifecycle: Lifecycle, drain_s: float) -> None:
        super().__init__(config)
        self._lifecycle = lifecycle
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_hurried = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for sock in sockets or ():
            logger.info("listening on %s", url_of(sock))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logger.info("draining: %d requests are running", self._lifecycle.num_live)
        drain = asyncio.create_task(self._lifecycle.drain(self._drain_s))
        try:
            await super().shutdown(sockets)
        finally:
            drain.cancel()
        logger.info("stopped")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal handler: the second SIGINT is an end for all who run, and not a cut."""
        if self.should_exit and sig == signal.SIGINT and not self._is_hurried and self._loop:
            self._is_hurried = True
            self._loop.call_soon_threadsafe(self._lifecycle.abort_all)
            return
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn raises the signal again when it is done, which would look like a crash to a
        supervisor and skip the caller's clean-up.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
