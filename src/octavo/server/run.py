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
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from octavo.progress import Progress
from octavo.server.config import DRAIN_S, ServerConfig
from octavo.server.lifecycle import Lifecycle
from octavo.server.loading import LoadingApp, LoadingCancelled
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


def url_of(sock: socket.socket, scheme: str = "http") -> str:
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def serve(
    app: FastAPI,
    host: str = HOST,
    port: int = PORT,
    *,
    sock: socket.socket | None = None,
    drain_s: float = DRAIN_S,
    config: ServerConfig = ServerConfig(),  # noqa: B008 (frozen)
) -> None:
    """Serve until SIGTERM or SIGINT, then drain; returns when the last answer is out.

    ``sock``, from ``bind``, takes the place of host and port. ``config`` says whether it is HTTPS,
    and how long headers may be. Running requests get ``drain_s``
    seconds to finish; the rest ends with an error event. A second SIGINT ends all at once so, and a
    third cuts the connections. Blocks; logs and prints nothing.
    """
    with suppress(asyncio.CancelledError):  # the third SIGINT: uvicorn lets go of all
        sock = sock or bind(host, port)
        asyncio.run(serve_async(app, sock, drain_s=drain_s, config=config))


async def serve_async(
    app: FastAPI,
    sock: socket.socket,
    *,
    drain_s: float = DRAIN_S,
    config: ServerConfig = ServerConfig(),  # noqa: B008 (frozen)
) -> None:
    """The same inside a running loop. Handles signals only in the main thread."""
    await make_server(app, drain_s=drain_s, config=config).serve(sockets=[sock])


def serve_while_loading(
    load: Callable[[Progress], FastAPI],
    *,
    sock: socket.socket,
    drain_s: float = DRAIN_S,
    config: ServerConfig = ServerConfig(),  # noqa: B008 (frozen)
) -> None:
    """``serve``, from before the application exists: ``load`` makes it, in another thread.

    Until then /health/ready tells how far it is and everything else is 503. Raises what ``load``
    raises. A signal ends the loading the next time that it reports its progress.
    """
    with suppress(asyncio.CancelledError):  # the third SIGINT, as above
        asyncio.run(_serve_while_loading(load, sock, drain_s, config))


async def _serve_while_loading(
    load: Callable[[Progress], FastAPI],
    sock: socket.socket,
    drain_s: float,
    config: ServerConfig,
) -> None:
    front = LoadingApp()
    server = make_server(front, drain_s=drain_s, config=config)
    server.announces = False
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    loading = asyncio.create_task(asyncio.to_thread(load, front.report))
    await asyncio.wait({serving, loading}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if serving.done():
            front.cancel()
            with suppress(LoadingCancelled):
                await loading
        else:
            front.open(await loading)
            if not server.should_exit:  # or else the socket may be closed already
                _log_listening([sock], server.scheme)
    finally:
        server.should_exit = server.should_exit or not front.is_open
        await serving


def make_server(
    app: FastAPI | LoadingApp,
    *,
    drain_s: float = DRAIN_S,
    config: ServerConfig = ServerConfig(),  # noqa: B008 (frozen)
) -> DrainingServer:
    """A server that has not started; setting ``should_exit`` ends it as SIGTERM would."""
    settings = uvicorn.Config(
        app,
        http="h11",  # the one whose headers have a limit
        h11_max_incomplete_event_size=config.max_header_bytes,
        ssl_certfile=config.ssl_certfile,
        ssl_keyfile=config.ssl_keyfile,
        log_config=None,  # handlers and formats are the program's choice
        access_log=False,  # request_log.py says more of each request
        lifespan="off",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(drain_s) + LAST_WORDS_S,
    )
    server = DrainingServer(settings, lambda: app.state.lifecycle, drain_s)
    server.scheme = "http" if config.ssl_certfile is None else "https"
    return server


def _log_listening(sockets: list[socket.socket], scheme: str) -> None:
    """The line that says that requests may come."""
    for sock in sockets:
        logger.info("listening on %s", url_of(sock, scheme))


class DrainingServer(uvicorn.Server):
    """uvicorn, with a drain before the end, and an exit status that says that all went well.

    ``lifecycle`` gives None as long as there is nothing to drain. ``announces``: log that requests
    may come as soon as connections may, at a URL of ``scheme``.
    """

    def __init__(
        self, config: uvicorn.Config, lifecycle: Callable[[], Lifecycle | None], drain_s: float
    ) -> None:
        super().__init__(config)
        self.announces = True
        self.scheme = "http"
        self._lifecycle = lifecycle
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_hurried = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.announces:
            _log_listening(sockets or [], self.scheme)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        lifecycle = self._lifecycle()
        if lifecycle is None:
            await super().shutdown(sockets)
            return
        logger.info("draining: %d requests are running", lifecycle.num_live)
        drain = asyncio.create_task(lifecycle.drain(self._drain_s))
        try:
            await super().shutdown(sockets)
        finally:
            drain.cancel()
        logger.info("stopped")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal handler: the second SIGINT is an end for all who run, and not a cut."""
        is_second = self.should_exit and sig == signal.SIGINT and not self._is_hurried
        lifecycle = self._lifecycle()
        if is_second and self._loop is not None and lifecycle is not None:
            self._is_hurried = True
            self._loop.call_soon_threadsafe(lifecycle.abort_all)
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
