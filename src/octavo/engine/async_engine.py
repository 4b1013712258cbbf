# SPDX-License-Identifier: Apache-2.0
"""The engine behind a thread of its own, for any number of asyncio loops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from octavo.engine.admission import ORDINARY, Admission, Prompt
from octavo.engine.engine import Engine
from octavo.engine.queue_bounds import QueueBounds
from octavo.engine.trace import Trace
from octavo.metrics.engine_metrics import EngineStats
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import EngineOverloaded, EngineStopped, InvalidRequest
from octavo.types.outputs import RequestOutput
from octavo.types.ports import Clock
from octavo.types.request import Request, Standing
from octavo.types.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

T = TypeVar("T")

SEEN_PER_STEP = 256  # waiting requests that may be counted for each step: some 100 us
LEASE_CHECKS = 8  # per lease: a dead request outlives its lease by an eighth at most


class _Stream:
    """Outputs on their way to one consumer. Touched only in the consumer's own loop; the lease may
    be read by any thread.

    The consumer holds a lease while it waits for an output, and for some time after it last took
    one. So a request whose client is gone ends, even if nobody told the engine.
    """

    __slots__ = ("_clock", "_failure", "_is_awaited", "_outputs", "_taken_time", "_waiter", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self._clock = clock
        self._taken_time = clock()
        self._is_awaited = False
        self._outputs: deque[RequestOutput] = deque()
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: RequestOutput | Exception) -> None:
        if isinstance(item, RequestOutput):
            self._outputs.append(item)
        else:
            self._failure = item
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> RequestOutput:
        """The next output, or the failure that ended the stream once all before it is delivered."""
        self._is_awaited = True
        try:
            while not self._outputs:
                if self._failure is not None:
                    raise self._failure
                self._waiter = self.loop.create_future()
                await self._waiter
            return self._outputs.popleft()
        finally:
            self._taken_time = self._clock()
            self._is_awaited = False

    def unused_s(self, now: float) -> float:
        """Seconds since the consumer last wanted anything."""
        return 0.0 if self._is_awaited else now - self._taken_time


@dataclass(frozen=True, slots=True)
class _Add:
    request: Request
    stream: _Stream
    arrival_time: float | None


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Ask:
    question: Callable[[Engine], Any]
    answer: Future[Any]


@dataclass(frozen=True, slots=True)
class _Drain:
    done: Future[None]


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command = _Add | _Abort | _Ask | _Drain | _Stop
_Delivery = tuple[_Stream, RequestOutput | Exception]


class AsyncEngine:
    """Owns an ``Engine`` and the one thread that touches it.

    Every method may be called from any thread and any loop. Commands go in through a queue; outputs
    come back with one wake-up per step and loop, however many streams it has. Whatever happens to
    the engine's thread, every stream ends: with its last output or with ``EngineStopped``. A stream
    that nobody reads for ``request_lease_s`` is aborted.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._inbox: SimpleQueue[_Command] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="octavo-scheduler", daemon=True)
        self._bounds = QueueBounds(engine.config.runtime, engine.clock)
        self._lock = threading.Lock()  # guards the five below
        self._ids: set[str] = set()  # requests with a stream
        self._inside: dict[str, int] = {}  # those that have not ended, and their prompt tokens
        self._num_prompt_tokens = 0  # of them all
        self._is_draining = False
        self._stopped: EngineStopped | None = None
        self._stats = engine.stats()
        # The engine's thread alone:
        self._streams: dict[str, _Stream] = {}
        self._lease_s = engine.config.runtime.request_lease_s
        self._steps_unseen = 0
        self._leases_checked = engine.clock()
        self._drains: list[Future[None]] = []
        self._is_stopping = False

    @property
    def admission(self) -> Admission:
        return self._engine.admission

    @property
    def is_running(self) -> bool:
        """False before ``start``, and for good once the engine has stopped or failed."""
        return self._thread.is_alive() and self._stopped is None

    @property
    def is_full(self) -> bool:
        """Whether a request that came now would be refused, because as many wait as may."""
        with self._lock:
            try:
                self._check_room()
            except EngineOverloaded:
                return True
        return False

    def start(self) -> None:
        """Start the engine's thread. Once."""
        with self._lock:
            if self._stopped is not None:
                raise _again(self._stopped)
            self._thread.start()

    async def generate(
        self,
        prompt: Prompt | Request,
        params: SamplingParams | BeamSearchParams | None = None,
        request_id: str | None = None,
        *,
        arrival_time: float | None = None,
        standing: Standing = ORDINARY,
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of a request, until one is ``finished``.

        Takes a ``Request`` that ``admission`` has admitted, or a prompt with parameters and an id,
        which is then admitted in a worker thread. Raises ``InvalidRequest``, ``EngineStopped`` and
        ``EngineOverloaded``.
        Leaving the iteration early (close, cancel, error) aborts the request in the engine.
        """
        if isinstance(prompt, Request):
            request = prompt
        elif params is None or request_id is None:
            raise InvalidRequest("a prompt needs params and request_id", param="prompt")
        else:
            request = await asyncio.to_thread(
                self.admission.admit, prompt, params, request_id=request_id, standing=standing
            )
        stream = _Stream(asyncio.get_running_loop(), self._engine.clock)
        self._register(request)
        is_over = False
        try:
            self._post(_Add(request, stream, arrival_time))
            while not is_over:
                output = await stream.next()
                is_over = output.finished
                if is_over:  # the id is free as soon as the caller sees the end
                    self._unregister(request.request_id)
                yield output
        finally:
            if not is_over:
                self._leave(request.request_id)

    def abort(self, request_id: str) -> None:
        """End a request; its stream gets a last output with finish_reason "abort". Idempotent."""
        with self._lock:
            if self._stopped is None:
                self._inbox.put(_Abort(request_id))

    def stats(self) -> EngineStats:
        """The engine after its last step; never waits. Whether it is stuck is as of now."""
        watchdog = self._engine.watchdog
        return replace(self._stats, is_stuck=watchdog.is_stuck, no_progress_s=watchdog.idle_s)

    @property
    def trace(self) -> Trace:
        """What happened lately; may be read from any thread."""
        return self._engine.trace

    async def ask(self, question: Callable[[Engine], T]) -> T:
        """What ``question`` says about the engine, asked in the engine's thread between two steps:
        for what only that thread may touch. It must be quick, and change nothing that an answer
        depends on.

        Raises ``EngineStopped``, and whatever the question raises.
        """
        answer: Future[T] = Future()
        self._post(_Ask(question, answer))
        return await asyncio.wrap_future(answer)

    async def drain(self, timeout_s: float) -> bool:
        """Take no more requests and wait until those inside have ended; False when time ran out."""
        done: Future[None] = Future()
        with self._lock:
            self._is_draining = True
            if self._stopped is not None:
                return True
            self._inbox.put(_Drain(done))
        try:
            await asyncio.wait_for(asyncio.wrap_future(done), timeout_s)
        except TimeoutError:
            return False
        return True

    def shutdown(self, timeout_s: float = 60.0) -> None:
        """Stop the thread, end what is left with ``EngineStopped``, close the engine. Idempotent.

        Waits for the step in flight, at most ``timeout_s``.
        """
        with self._lock:
            never_started = self._thread.ident is None
            if self._stopped is None:
                if never_started:
                    self._stopped = EngineStopped("the engine has shut down")
                    self._engine.close()
                else:
                    self._inbox.put(_Stop())
            self._is_draining = True
        if not never_started:
            self._thread.join(timeout_s)

    # In the callers' threads ------------------------------------------------------------------

    def _register(self, request: Request) -> None:
        request_id, num_tokens = request.request_id, len(request.prompt_token_ids)
        with self._lock:
            if self._stopped is not None:
                raise _again(self._stopped)
            if self._is_draining:
                raise EngineStopped("the engine is shutting down and takes no more requests")
            self._check_room(num_tokens)
            if request_id in self._ids:
                raise InvalidRequest(f"request id {request_id!r} is in use", param="request_id")
            self._ids.add(request_id)
            self._inside[request_id] = num_tokens
            self._num_prompt_tokens += num_tokens

    def _check_room(self, num_tokens: int = 1) -> None:
        """Raise ``EngineOverloaded`` if a prompt so long would be one too many now. In the lock."""
        self._bounds.check(
            num_inside=len(self._inside),
            num_tokens_inside=self._num_prompt_tokens,
            new=num_tokens,
            now=self._stats,
        )

    def _unregister(self, request_id: str) -> None:
        with self._lock:
            self._ids.discard(request_id)
            self._uncount(request_id)

    def _uncount(self, request_id: str) -> None:
        """It has ended; its consumer may not have heard of that yet. In the lock. Idempotent."""
        self._num_prompt_tokens -= self._inside.pop(request_id, 0)

    def _leave(self, request_id: str) -> None:
        """The consumer has gone. In one lock, so that the abort is before any re-use of the id."""
        with self._lock:
            self._ids.discard(request_id)
            self._uncount(request_id)
            if self._stopped is None:
                self._inbox.put(_Abort(request_id))

    def _post(self, command: _Command) -> None:
        """Hand over a command. In the lock, so that none is left behind by a thread that ends."""
        with self._lock:
            if self._stopped is not None:
                raise _again(self._stopped)
            self._inbox.put(command)

    # In the engine's thread -------------------------------------------------------------------

    def _run(self) -> None:
        failure = EngineStopped("the engine has shut down")
        try:
            while not self._is_stopping:
                self._take_commands()
                if self._engine.has_unfinished():
                    self._deliver(self._engine.step(self._take_arrived))
                self._end_unread()
                self._engine.upkeep()
                self._refresh_stats()
        except BaseException as error:  # nobody is above this thread: what is not logged is lost
            logger.critical("the engine has failed", exc_info=error)
            failure = EngineStopped(f"the engine has failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
        finally:
            self._end(failure)

    def _take_commands(self) -> None:
        """Apply what has arrived; wait for something when there is nothing to do."""
        if not self._engine.has_unfinished():
            self._finish_drains()
            with suppress(Empty):  # upkeep goes on while there is nothing else to do
                self._apply(self._inbox.get(timeout=self._engine.upkeep_interval_s))
        self._take_arrived()

    def _refresh_stats(self) -> None:
        """A picture costs more with a long queue, and is then taken after every few steps."""
        self._steps_unseen += 1
        is_due = self._steps_unseen * SEEN_PER_STEP >= self._stats.num_waiting
        if is_due or not self._engine.has_unfinished():
            self._stats = self._engine.stats()
            self._steps_unseen = 0
            self._bounds.observe(self._stats)

    def _end_unread(self) -> None:
        """Abort the requests whose consumer has let the lease run out."""
        now = self._engine.clock()
        if not 0.0 < self._lease_s / LEASE_CHECKS < now - self._leases_checked:
            return
        self._leases_checked = now
        for request_id, stream in list(self._streams.items()):
            if stream.unused_s(now) > self._lease_s:
                self._engine.expire_lease(request_id)

    def _take_arrived(self) -> None:
        while not self._inbox.empty():  # this thread alone takes out, so get() cannot block
            self._apply(self._inbox.get())

    def _apply(self, command: _Command) -> None:
        match command:
            case _Add():
                self._add(command)
            case _Abort(request_id):
                if self._engine.chaos is None or not self._engine.chaos.abort_is_lost():
                    self._engine.abort(request_id)
            case _Ask(question, answer):
                _answer(question, self._engine, answer)
            case _Drain(done):
                self._drains.append(done)
            case _Stop():
                self._is_stopping = True

    def _add(self, command: _Add) -> None:
        request_id = command.request.request_id
        if request_id in self._streams:  # an aborted one of the same name still has its last word
            self._deliver(self._engine.take_outputs())
        try:
            self._engine.add(command.request, arrival_time=command.arrival_time)
        except Exception as error:  # it was not filed: tell its own stream, and nobody else
            self._send([(command.stream, error)])
        else:
            self._streams[request_id] = command.stream

    def _finish_drains(self) -> None:
        for done in self._drains:
            if done.set_running_or_notify_cancel():  # False: its waiter has run out of time
                done.set_result(None)
        self._drains.clear()

    def _deliver(self, outputs: list[RequestOutput]) -> None:
        deliveries: list[_Delivery] = []
        for output in outputs:
            stream = self._streams.get(output.request_id)
            if stream is None:
                continue
            deliveries.append((stream, output))
            if output.finished:
                del self._streams[output.request_id]
                with self._lock:
                    self._uncount(output.request_id)
        for request_id in self._send(deliveries):
            self._engine.abort(request_id)
            self._unregister(request_id)

    def _send(self, deliveries: list[_Delivery]) -> list[str]:
        """One wake-up per loop. Returns the requests whose loop is closed: nobody listens there."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Delivery]] = {}
        for delivery in deliveries:
            by_loop.setdefault(delivery[0].loop, []).append(delivery)
        deaf = []
        for loop, batch in by_loop.items():
            try:
                loop.call_soon_threadsafe(_put_all, batch)
            except RuntimeError:  # the loop was closed with its generators still open
                deaf += [item.request_id for _, item in batch if isinstance(item, RequestOutput)]
        return deaf

    def _end(self, failure: EngineStopped) -> None:
        """The last thing that the thread does: refuse what comes, end every stream, free the
        engine.
        """
        with self._lock:
            self._stopped = failure
            while not self._inbox.empty():
                command = self._inbox.get()
                if isinstance(command, _Add):
                    self._streams[command.request.request_id] = command.stream
                elif isinstance(command, _Drain):
                    self._drains.append(command.done)
                elif isinstance(command, _Ask):
                    command.answer.set_exception(_again(failure))
        self._send([(stream, _again(failure)) for stream in self._streams.values()])
        self._streams.clear()
        self._finish_drains()
        self._engine.close()
        self._stats = self._engine.stats()


def _again(failure: EngineStopped) -> EngineStopped:
    """The same to raise once more: an exception that many raise gathers all their tracebacks."""
    copy = EngineStopped(str(failure))
    copy.__cause__ = failure.__cause__
    return copy


def _answer(question: Callable[[Engine], Any], engine: Engine, answer: Future[Any]) -> None:
    if not answer.set_running_or_notify_cancel():
        return  # whoever asked has gone
    try:
        answer.set_result(question(engine))
    except Exception as error:
        answer.set_exception(error)


def _put_all(batch: list[_Delivery]) -> None:
    for stream, item in batch:
        stream.put(item)
