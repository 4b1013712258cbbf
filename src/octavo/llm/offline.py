# SPDX-License-Identifier: Apache-2.0
"""``LLM``: a model and an engine in this process, driven by the thread that calls."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from octavo.engine.admission import ORDINARY, PromptDict
from octavo.llm import chats
from octavo.llm.interrupts import interrupts_deferred
from octavo.llm.options import engine_config
from octavo.llm.prompts import (
    Message,
    Params,
    Prompt,
    normalise_conversation,
    normalise_conversations,
    normalise_params,
    normalise_prompts,
    normalise_standings,
)
from octavo.llm.stream import Stream
from octavo.progress import BatchBar, TerminalProgress
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.config import ChatConfig
from octavo.types.errors import CorruptState, EngineStopped, InvalidRequest
from octavo.types.sampling_params import OutputKind, SamplingParams

if TYPE_CHECKING:
    from octavo.engine.admission import Admission
    from octavo.types.outputs import RequestOutput
    from octavo.types.ports import Tokenizer
    from octavo.types.request import Standing


class SyncEngine(Protocol):
    """What ``LLM`` needs of an engine; ``octavo.engine.engine.Engine`` is one."""

    @property
    def admission(self) -> Admission: ...

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool: ...

    def add_request(
        self, request_id: str, prompt: PromptDict, params: Params, *, standing: Standing
    ) -> None: ...

    def step(self) -> list[RequestOutput]: ...

    def take_outputs(self) -> list[RequestOutput]: ...

    def has_unfinished(self) -> bool: ...

    def abort(self, request_id: str) -> None: ...


class Assembled(Protocol):
    """What ``octavo.assemble.build_engine`` returns, as far as ``LLM`` uses it."""

    @property
    def engine(self) -> SyncEngine: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def model_name(self) -> str: ...

    @property
    def chat(self) -> ChatConfig: ...

    def close(self) -> None: ...


class LLM:
    """A language model for use from Python, without a server.

    model                   alias, .gguf path, directory or hub id; pulled first if need be
    seed                    source of the seeds of requests that bring none; None draws it
    max_model_len           longest prompt plus answer in tokens; None: the model's own context
    max_num_seqs            sequences computed together
    max_num_batched_tokens  tokens that one step may compute
    block_size              token slots per block of the KV cache
    kv_cache_memory_bytes   size of the KV cache in bytes; None fits it to this machine
    **options               ``num_threads``, ``isa``, and vLLM's other names: what cannot have an
                            effect here warns once, what would change the result is refused

    Threads may share one ``LLM``: their requests are batched together. Outputs are in the order of
    the prompts. ``close`` (or a ``with`` block) frees weights and KV cache at once.

    Raises ``ModelNotFound``, ``UnsupportedModel``, ``BadCheckpoint``, ``InvalidConfig``, and
    ``TypeError`` for an unknown option.
    """

    def __init__(
        self,
        model: str,
        *,
        seed: int | None = 0,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        block_size: int | None = None,
        kv_cache_memory_bytes: int | None = None,
        **options: object,
    ) -> None:
        named = {
            "seed": seed,
            "max_model_len": max_model_len,
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "block_size": block_size,
            "kv_cache_memory_bytes": kv_cache_memory_bytes,
        }
        config = engine_config(model, {**named, **options}, stacklevel=2)
        from octavo.assemble import build_engine  # loads the native core: not before it is needed

        with TerminalProgress() as progress:
            self._take(build_engine(model, config, progress=progress))

    @classmethod
    def from_assembled(cls, assembled: Assembled) -> LLM:
        """An ``LLM`` over an engine that is already built; ``close`` closes that."""
        llm = cls.__new__(cls)
        llm._take(assembled)
        return llm

    def _take(self, assembled: Assembled) -> None:
        self._assembled: Assembled | None = assembled
        self._pid = os.getpid()
        self._lock = threading.RLock()  # guards all below; taken by ``_turn`` only
        self._is_in_turn = False
        self._dropped: deque[str] = deque()  # ids to abort; any thread appends at any moment
        self._next_id = 0
        # Outputs wait here for whoever asked: two threads, or a stream and a batch, share steps.
        self._boxes: dict[str, list[RequestOutput]] = {}
        self._ready: dict[str, None] = {}  # ids whose box is not empty, oldest first
        self._queued: list[str] = []

    @property
    def model_name(self) -> str:
        return self._alive().model_name

    def get_tokenizer(self) -> Tokenizer:
        return self._alive().tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What ``generate`` uses when it is given none."""
        return SamplingParams()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params | Sequence[Params] | None = None,
        *,
        use_tqdm: bool = True,
        priority: int | Sequence[int] | None = None,
        standing: Standing | Sequence[Standing] | None = None,
        **extras: object,
    ) -> list[RequestOutput]:
        """Answer every prompt; outputs in the order of the prompts.

        A prompt is text, a list of token ids, or a dict with ``prompt`` or ``prompt_token_ids``,
        and perhaps a ``cache_salt``. ``sampling_params``, ``priority`` and ``standing`` are one for
        all, or a list with one for each. Raises ``InvalidRequest`` before anything runs if one of
        them is bad; no request stays behind, then or on Ctrl-C.
        """
        _refuse_extras(extras)
        plain = normalise_prompts(prompts)
        params = normalise_params(sampling_params, len(plain))
        standings = normalise_standings(standing, priority, len(plain))
        return self._collect(self._submit_all(plain, params, standings), use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: Params | Sequence[Params] | None = None,
        use_tqdm: bool = True,
        *,
        add_generation_prompt: bool = True,
        priority: int | Sequence[int] | None = None,
        standing: Standing | Sequence[Standing] | None = None,
        **extras: object,
    ) -> list[RequestOutput]:
        """Continue one conversation or a list of them, each a list of ``{"role", "content"}``.

        The model's own chat template makes the prompt; ``InvalidRequest`` if it has none. It sees
        ``tools`` and ``chat_template_kwargs``; with ``continue_final_message`` the answer goes on
        where the last message ends. A call in the answer is text.
        """
        _refuse_extras({name: extras[name] for name in extras if name not in chats.EXTRAS})
        plain = [
            self._render(conversation, add_generation_prompt, extras)
            for conversation in normalise_conversations(messages)
        ]
        params = normalise_params(sampling_params, len(plain))
        standings = normalise_standings(standing, priority, len(plain))
        return self._collect(self._submit_all(plain, params, standings), use_tqdm)

    def beam_search(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: BeamSearchParams,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """The ``beam_width`` likeliest answers to every prompt that a beam search finds.

        ``outputs`` are the answers, the highest ``score`` first. Raises ``InvalidRequest`` as
        ``generate`` does.
        """
        return self.generate(prompts, params, use_tqdm=use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Stream:
        """Outputs of one prompt as they come, each with what is new. Closing it ends the request.

        The prompt is checked now, before the first output is asked for.
        """
        (plain,) = normalise_prompts([prompt])
        return self._stream(plain, sampling_params)

    def stream_chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Stream:
        """``stream`` for one conversation."""
        conversation = normalise_conversation(messages)
        return self._stream(self._render(conversation, True), sampling_params)

    def enqueue(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: Params | Sequence[Params] | None = None,
        *,
        standing: Standing | Sequence[Standing] | None = None,
    ) -> list[str]:
        """Take requests without running them; returns their ids for ``as_completed``."""
        return self._enqueue(normalise_prompts(prompts), sampling_params, standing)

    def enqueue_chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: Params | Sequence[Params] | None = None,
        *,
        standing: Standing | Sequence[Standing] | None = None,
    ) -> list[str]:
        """``enqueue`` for conversations."""
        conversations = normalise_conversations(messages)
        plain = [self._render(conversation, True) for conversation in conversations]
        return self._enqueue(plain, sampling_params, standing)

    def wait_for_completion(self, *, use_tqdm: bool = True) -> list[RequestOutput]:
        """Run everything that was enqueued; outputs in the order of the calls."""
        with self._turn():
            request_ids, self._queued = self._queued, []
        return self._collect(request_ids, use_tqdm)

    def as_completed(self, request_ids: Iterable[str]) -> Iterator[RequestOutput]:
        """Final outputs of enqueued requests in the order in which they end. Closing the iterator
        aborts what is left.

        Raises ``InvalidRequest`` for an id that is not open: not from ``enqueue``, or given before.
        """
        open_ids = dict.fromkeys(request_ids)
        with self._turn():
            unknown = [one for one in open_ids if one not in self._boxes]
            if unknown:
                raise InvalidRequest(
                    f"no open request has the id {unknown[0]!r}; enqueue returns the ids",
                    param="request_ids",
                )
            self._queued = [one for one in self._queued if one not in open_ids]
        try:
            while open_ids:
                for output in self._advance(open_ids):
                    if output.finished:
                        del open_ids[output.request_id]
                        self._forget([output.request_id])
                        yield output
        finally:
            self._abort(open_ids)

    def reset_prefix_cache(self, *, preempt_running: bool = False) -> bool:
        """Forget every cached prefix, pins included. Whether all of its memory is free again: what
        runs keeps its own, or, with ``preempt_running``, gives it up first and computes it anew."""
        with self._turn():
            engine = self._alive().engine
            return engine.reset_prefix_cache(preempt_running=preempt_running)

    def close(self) -> None:
        """Free weights, KV cache and threads. Idempotent; later calls raise ``EngineStopped``.

        Calls that other threads are in raise it too, after the step in flight.
        """
        with self._turn():
            assembled, self._assembled = self._assembled, None
            if assembled is not None:
                assembled.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _alive(self) -> Assembled:
        if self._assembled is None:
            raise EngineStopped("this LLM is closed; make a new one")
        if os.getpid() != self._pid:  # it would wait for compute threads that are not here
            raise EngineStopped(
                "this LLM was made before a fork, which copies no threads; make one in this process"
            )
        return self._assembled

    def _render(
        self,
        conversation: list[dict[str, object]],
        add_generation_prompt: bool,
        extras: Mapping[str, object] | None = None,
    ) -> PromptDict:
        """Templates write the special tokens themselves; the tokenizer must not add them again."""
        tokenizer = self.get_tokenizer()
        config = self._alive().chat
        text = chats.prompt_text(
            tokenizer, config, conversation, add_generation_prompt, extras or {}
        )
        ids = self._alive().engine.admission.encode(text, add_special_tokens=False)
        return {"prompt": text, "prompt_token_ids": ids}

    def _enqueue(
        self,
        plain: list[PromptDict],
        sampling_params: Params | Sequence[Params] | None,
        standing: Standing | Sequence[Standing] | None,
    ) -> list[str]:
        params = normalise_params(sampling_params, len(plain))
        standings = normalise_standings(standing, None, len(plain))
        request_ids = self._submit_all(plain, params, standings)
        with self._turn():
            self._queued += request_ids
        return request_ids

    def _submit_all(
        self, plain: list[PromptDict], params: list[Params], standings: list[Standing]
    ) -> list[str]:
        """All or none: a bad prompt takes back those before it."""
        request_ids: list[str] = []
        try:
            for prompt, one, standing in zip(plain, params, standings, strict=True):
                if isinstance(one, SamplingParams):
                    one = one.clone(output_kind=OutputKind.FINAL_ONLY)
                request_ids.append(self._submit(prompt, one, standing))
        except BaseException:
            self._abort(request_ids)
            raise
        return request_ids

    def _submit(self, prompt: PromptDict, params: Params, standing: Standing = ORDINARY) -> str:
        with self._turn():
            engine = self._alive().engine  # in the lock: ``close`` may have been faster
            request_id = str(self._next_id)
            self._next_id += 1
            try:
                with interrupts_deferred():
                    engine.add_request(request_id, prompt, params, standing=standing)
                    self._boxes[request_id] = []
            except BaseException:  # refused, or Ctrl-C came just after it was taken
                self._end([request_id])
                raise
        return request_id

    def _stream(self, prompt: PromptDict, params: SamplingParams | None) -> Stream:
        delta = (params or SamplingParams()).clone(output_kind=OutputKind.DELTA)
        request_id = self._submit(prompt, delta)
        return Stream(
            advance=lambda: self._advance({request_id: None}),
            end=lambda: self._abort([request_id]),
        )

    def _collect(self, request_ids: list[str], use_tqdm: bool) -> list[RequestOutput]:
        finished: dict[str, RequestOutput] = {}
        try:
            with BatchBar(len(request_ids), visible=use_tqdm) as bar:
                for output in self.as_completed(request_ids):
                    finished[output.request_id] = output
                    bar.advance(output.num_output_tokens)
        except BaseException:  # Ctrl-C may come before ``as_completed`` has begun
            self._abort(request_ids)
            raise
        return [finished[request_id] for request_id in request_ids]

    def _advance(self, request_ids: Mapping[str, None]) -> list[RequestOutput]:
        """What is new for these requests; runs one step if nothing is waiting for them."""
        with self._turn():
            engine = self._alive().engine
            outputs = self._drain(request_ids)
            if outputs:
                return outputs
            if not engine.has_unfinished():
                raise CorruptState(f"the engine is idle and {len(request_ids)} requests are open")
            with interrupts_deferred():
                self._deliver(engine.step())
            return self._drain(request_ids)

    def _drain(self, request_ids: Mapping[str, None]) -> list[RequestOutput]:
        """Costs what is ready, not what is open: a batch of ten thousand mostly waits."""
        outputs: list[RequestOutput] = []
        for request_id in [one for one in self._ready if one in request_ids]:
            del self._ready[request_id]
            box = self._boxes[request_id]
            outputs += box
            box.clear()
        return outputs

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One thread at a time; what was dropped meanwhile is ended before the next one.

        The garbage collector may drop a stream at any allocation, and so in the midst of a step, by
        the thread that runs it. Then the lock would never be free, and the engine is not to be
        touched: the inner turn is empty, and the outer one ends the request.
        """
        with self._lock:
            if self._is_in_turn:
                yield
                return
            try:
                self._is_in_turn = True
                yield
            finally:
                try:
                    with interrupts_deferred():
                        while self._dropped:
                            self._end([self._dropped.popleft()])
                finally:
                    self._is_in_turn = False

    def _abort(self, request_ids: Iterable[str]) -> None:
        self._dropped.extend(request_ids)
        if self._dropped:
            with self._turn():
                pass

    def _end(self, request_ids: Iterable[str]) -> None:
        """Nobody reads the last output of an aborted request, so it is taken out of the engine."""
        self._forget(request_ids)
        if self._assembled is not None:
            for request_id in request_ids:
                self._assembled.engine.abort(request_id)
            self._deliver(self._assembled.engine.take_outputs())

    def _deliver(self, outputs: Iterable[RequestOutput]) -> None:
        for output in outputs:
            if output.request_id in self._boxes:
                self._boxes[output.request_id].append(output)
                self._ready[output.request_id] = None

    def _forget(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self._boxes.pop(request_id, None)
            self._ready.pop(request_id, None)


def _refuse_extras(extras: Mapping[str, object]) -> None:
    """vLLM's other arguments at None or "auto" ask for nothing; anything else is refused."""
    known = {
        "chat_template",
        "chat_template_content_format",
        "lora_request",
        "mm_processor_kwargs",
        "tokenization_kwargs",
    }
    for name, value in extras.items():
        if name not in known and name not in chats.EXTRAS:
            raise TypeError(f"unexpected keyword argument {name!r}")
        if value not in (None, False, "auto"):
            raise InvalidRequest(f"{name} is not supported", param=name)
