# SPDX-License-Identifier: Apache-2.0
"""A byte tokenizer, an engine that recites, and ways to reach an application in a test."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

import httpx
from fastapi import FastAPI
from wirecheck import Checked

from octavo.engine.admission import Admission
from octavo.engine.overflow import AdmissionLimits
from octavo.metrics.engine_metrics import EngineMetrics, EngineStats
from octavo.server.app import build_app
from octavo.server.config import ServerConfig
from octavo.server.operations import Operations
from octavo.server.run import bind, make_server, url_of
from octavo.types.errors import EngineStopped, InvalidRequest
from octavo.types.outputs import CompletionOutput, Logprob, RequestOutput
from octavo.types.request import Request
from octavo.types.sampling_params import OutputKind

BOS, EOS = 256, 257
MODEL = "test/recital"
MAX_MODEL_LEN = 4096
ANSWER = "Grüße, world 🌍."


class ByteTokenizer:
    """One token per UTF-8 byte, with a beginning and an end of sequence."""

    vocab_size = 258
    bos_token_id = BOS
    eos_token_id = EOS
    stop_token_ids = frozenset({EOS})
    chat_template = "yes"

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [BOS] * add_special_tokens + list(text.encode("utf-8"))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(self.token_bytes(id_) for id_ in token_ids if id_ < 256).decode(
            "utf-8", "replace"
        )

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def is_special(self, token_id: int) -> bool:
        return token_id >= 256

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        if messages[0]["role"] == "assistant":
            raise InvalidRequest("a conversation starts with the user", param="messages")
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        return "".join(lines) + "assistant: " * add_generation_prompt


class ReciteEngine:
    """Answers every prompt with the same text, a byte per step, then ends by EOS or by length.

    ``stall_after``: give nothing more after so many tokens, until aborted or released.
    ``fail_after``: end with an error there. ``live`` and ``aborted`` are the books to look at.
    """

    def __init__(
        self,
        answer: str = ANSWER,
        *,
        stall_after: int | None = None,
        fail_after: int | None = None,
    ) -> None:
        self.tokenizer = ByteTokenizer()
        limits = AdmissionLimits(MAX_MODEL_LEN, 10**6, num_samples_max=16)
        self.admission = Admission(self.tokenizer, limits)
        self.answer = answer.encode()
        self.stall_after = stall_after
        self.fail_after = fail_after
        self.is_running = True
        self.is_full = False
        self.live: dict[str, asyncio.Event] = {}
        self.aborted: list[str] = []
        self.requests: list[Request] = []
        self.steps = 0

    async def generate(
        self,
        request: Request,
    ) -> AsyncIterator[RequestOutput]:
        if not self.is_running:
            raise EngineStopped("the engine has failed: secret")
        self.loop = asyncio.get_running_loop()
        self.requests.append(request)
        wake = self.live[request.request_id] = asyncio.Event()
        is_over = False
        try:
            async for output in self._recite(request, wake):
                is_over = output.finished
                yield output
        finally:
            if not is_over:
                self.abort(request.request_id)
            del self.live[request.request_id]

    async def _recite(self, request: Request, wake: asyncio.Event) -> AsyncIterator[RequestOutput]:
        params, text, held = request.params, "", codecs.getincrementaldecoder("utf-8")("replace")
        ids: list[int] = []
        for token_id in [*self.answer, EOS]:
            if len(ids) == self.stall_after:
                await wake.wait()
            await asyncio.sleep(0)
            self.steps += 1
            ids.append(token_id)
            reason = "stop" if token_id == EOS else None
            new = held.decode(bytes([token_id])) if token_id < 256 else ""
            if len(ids) == request.max_tokens:
                reason = reason or "length"
            if len(ids) == self.fail_after:
                reason = "error"
            if request.request_id in self.aborted:
                reason = "abort"
            if reason:
                new += held.decode(b"", final=True)
            text += new
            is_delta = params.output_kind is OutputKind.DELTA
            if is_delta or reason:
                shown = ids[-1:] if is_delta else ids
                sample = CompletionOutput(
                    index=0,
                    text=new if is_delta else text,
                    token_ids=tuple(shown),
                    finish_reason=reason,
                    logprobs=self._logprobs(shown, params.logprobs),
                )
                yield RequestOutput(
                    request_id=request.request_id,
                    prompt=request.prompt,
                    prompt_token_ids=request.prompt_token_ids,
                    outputs=(sample,),
                    finished=reason is not None,
                    num_output_tokens=len(ids),
                    prompt_logprobs=self._prompt_logprobs(request),
                    error="secret: /etc/passwd" if reason == "error" else None,
                )
            if reason:
                return

    def _prompt_logprobs(self, request: Request):
        if request.params.prompt_logprobs is None:
            return None
        _, *rest = request.prompt_token_ids
        return (None, *self._logprobs(rest, request.params.prompt_logprobs))

    def _logprobs(self, ids: Sequence[int], num_top: int | None):
        """The token itself is the second likeliest; "!" is always likelier, and "?" impossible."""
        if num_top is None:
            return None
        others = {33: Logprob(-0.5, 1), 63: Logprob(float("-inf"), 3)}
        return tuple(
            {id_: Logprob(-1.0, 2), **dict(list(others.items())[: max(num_top, 0)])} for id_ in ids
        )

    def abort(self, request_id: str) -> None:
        if request_id in self.live:
            self.aborted.append(request_id)
            self.live[request_id].set()

    def release(self) -> None:
        """From any thread: let the stalled go on."""
        for wake in list(self.live.values()):
            self.loop.call_soon_threadsafe(wake.set)

    def stats(self) -> EngineStats:
        metrics = EngineMetrics()
        for seconds in (0.02, 0.02, 1000.0):
            metrics.ttft_s.observe(seconds)
        metrics.finished_total["stop"] = 3
        names = ("ttft_s", "itl_s", "e2e_s", "queue_s", "step_s")
        return EngineStats(
            num_running=len(self.live),
            num_waiting=2,
            num_swapped=0,
            oldest_waiting_s=1.5,
            num_blocks=8,
            num_free_blocks=6,
            num_limbo_blocks=1,
            block_size=32,
            steps_total=self.steps,
            failed_steps_total=0,
            computed_tokens_total=40,
            prompt_tokens_total=11,
            generation_tokens_total=29,
            preemptions_total=1,
            finished_total=metrics.frozen_finished(),
            **{name: getattr(metrics, name).snapshot() for name in names},
        )


def make_app(engine: ReciteEngine | None = None, **options: object) -> FastAPI:
    engine = engine or ReciteEngine()
    options = {"model_name": MODEL, "aliases": ["recital"], "version": "1.2.3", **options}
    if "max_body_bytes" in options:
        max_bytes = options.pop("max_body_bytes")
        config = ServerConfig(max_body_bytes=max_bytes)  # type: ignore[arg-type]
        options["around"] = Operations(config=config)
    return build_app(engine, engine.tokenizer, **options)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def connect(app: FastAPI, *, checks: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """A client; afterwards its answers must have been as the API is described."""
    checked = Checked(app)
    transport = httpx.ASGITransport(checked if checks else app)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        yield client
    checked.assert_clean()


def events_of(text: str) -> list[dict]:
    """The chunks of a stream, which must end with [DONE] and hold nothing but data lines."""
    lines = text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""], text[-200:]
    assert all(line.startswith("data: ") for line in lines[:-1])
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@contextlib.contextmanager
def running(app: FastAPI, *, drain_s: float = 5.0) -> Iterator[str]:
    """A real server on a free port, in a thread; yields its URL, and waits for its end."""
    sock = bind(port=0)
    checked = Checked(app)
    server = make_server(checked, drain_s=drain_s)  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[sock])))
    url = url_of(sock)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield url
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()
    checked.assert_clean()


def wait_until(condition, timeout_s: float = 10.0) -> None:
    waiter = threading.Event()
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return
        waiter.wait(0.01)
    raise AssertionError("the condition never came true")
