# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from starlette.requests import Request
from starlette.responses import Response

from octavo.chat.call_tally import CallTally
from octavo.chat.parts import AnswerParser, Content, Part, Reasoning, ToolArguments, ToolCall
from octavo.chat.whole_answer import WholeCall, joined
from octavo.engine.admission import PromptDict
from octavo.server.openai import answer
from octavo.server.openai.answer import Parsed, Service
from octavo.server.openai.beam_search import beam_search_params
from octavo.server.openai.conversation import conversation
from octavo.server.openai.generation import Job
from octavo.server.openai.logprobs import chat_logprobs, prompt_logprobs
from octavo.server.openai.sampling import (
    chat_names,
    chat_params,
    refuse_unsupported,
    spelt_as,
)
from octavo.server.openai.schemas import ChatRequest
from octavo.server.openai.standing import standing
from octavo.server.openai.structured import own_names
from octavo.types.errors import InvalidRequest
from octavo.types.outputs import CompletionOutput, FinishReason, RequestOutput
from octavo.types.ports import Tokenizer
from octavo.types.sampling_params import SamplingParams

CALLED = "tool_calls"  # the finish reason of an answer that calls
FORM = "structured_outputs.json"  # what the gate calls the form of a forced call


async def create(request: Request, service: Service) -> Response:
    return await answer.create(request, service, parse)


def parse(body: bytes, service: Service, job_id: str) -> Parsed:
    """Validate, render, tokenise: all the work that is too long for the event loop."""
    chat = ChatRequest.model_validate_json(body)
    answer.check_model(chat.model, service)
    refuse_unsupported(chat, service.unknown_fields)
    ready = prepare(chat, service)
    admission = service.engine.admission
    with own_names(chat), ready.own_names(), spelt_as(chat_names(chat)):
        job = Job.admit(
            f"chatcmpl-{job_id}",
            [ready.prompt],
            beam_search_params(chat, ready.params) or ready.params,
            admission,
            standing=standing(chat),
            clips_max_tokens=False,
        )
    choices = ChatChoices(
        service.tokenizer,
        (chat.top_logprobs or 0) if chat.logprobs else None,
        ready.new_parser,
        num_prompt_top=chat.prompt_logprobs,
        shows_reasoning=chat.include_reasoning is not False,
    )
    return Parsed(chat, job, choices)


@dataclass(frozen=True, slots=True)
class ReadyChat:
    """A chat request that can be admitted, and what makes parts of the text of each sample."""

    prompt: PromptDict
    params: SamplingParams
    new_parser: Callable[[], AnswerParser]
    is_forced: bool  # the form of the answer was made from the tools

    @contextmanager
    def own_names(self) -> Iterator[None]:
        """The form was made from the tools' schemas then, whatever the gate calls it."""
        try:
            yield
        except InvalidRequest as error:
            if not self.is_forced or FORM not in str(error):
                raise
            message = str(error).replace(f"answer by {FORM}", "call of a tool")
            message = message.removesuffix(", and closes_in_time asks for one")
            param = "tools" if (error.param or "").startswith(FORM) else error.param
            raise type(error)(message.replace(FORM, "tools"), param=param) from None


def prepare(chat: ChatRequest, service: Service) -> ReadyChat:
    """The request rendered and tokenised. Raises ``InvalidRequest`` that names the field."""
    params = chat_params(chat)
    asked = replace(conversation(chat), has_form=params.structured_outputs is not None)
    prepared = service.interpreter.prepare(asked)
    prompt = _encoded(prepared.text, chat, service)
    is_forced = prepared.structured_outputs is not None
    return ReadyChat(prompt, prepared.apply(params), prepared.new_parser, is_forced)


def prompt_of(chat: ChatRequest, service: Service) -> PromptDict:
    """The prompt alone, for those who will not ask for an answer."""
    return _encoded(service.interpreter.prepare(conversation(chat)).text, chat, service)


def _encoded(text: str, chat: ChatRequest, service: Service) -> PromptDict:
    # The template has written the special tokens already; adding them again would double BOS.
    ids = service.encode(text, add_special_tokens=bool(chat.add_special_tokens))
    return {"prompt": text, "prompt_token_ids": ids}


class ChatChoices:
    """One sample's part of a chat answer, whole or as deltas."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        num_top: int | None,
        new_parser: Callable[[], AnswerParser],
        *,
        num_prompt_top: int | None = None,
        shows_reasoning: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._num_prompt_top = num_prompt_top
        self._new_parser = new_parser
        self._shows_reasoning = shows_reasoning
        self._parsers: dict[int, AnswerParser] = {}  # by choice index
        self._tallies: dict[int, CallTally] = {}  # by choice index, too

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, num_choices: int) -> list[dict[str, object]]:
        """What every choice of a stream begins with."""
        delta = {"role": "assistant", "content": ""}
        return [
            {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            for index in range(num_choices)
        ]

    def envelope(self, output: RequestOutput) -> dict[str, object]:
        if self._num_prompt_top is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(output, self._num_prompt_top)}

    def whole(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]:
        parts = self._parts(index, sample)
        text = joined(parts)
        content = text.content or (None if text.calls or text.reasoning else "")
        message: dict[str, object] = {"role": "assistant", "content": content, "refusal": None}
        if text.reasoning:
            message |= _thought(text.reasoning)
        if text.calls:
            message["tool_calls"] = [_spelt_call(call) for call in text.calls]
        return {"index": index, "message": message, **self._end(index, sample)}

    def deltas(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> list[dict[str, object]]:
        """One part in each delta, for that is what clients are used to; the last has the end."""
        parts = self._parts(index, sample)
        deltas = [_delta(part) for part in parts]
        ends_alone = sample.finished() and not (parts and isinstance(parts[-1], Content))
        if ends_alone or (sample.logprobs and not deltas):
            deltas.append({})
        quiet = {"logprobs": None, "finish_reason": None, "stop_reason": None}
        chunks: list[dict[str, object]] = [
            {"index": index, "delta": delta, **quiet} for delta in deltas
        ]
        if chunks:
            chunks[-1] |= self._end(index, sample)
        return chunks

    def _parts(self, index: int, sample: CompletionOutput) -> list[Part]:
        """What is new in a sample. Each choice has a parser."""
        parser = self._parsers.get(index)
        if parser is None:
            parser = self._parsers[index] = self._new_parser()
            self._tallies[index] = CallTally()
        parts = parser.feed(sample.text) if sample.text else []
        if sample.finished():
            parts += parser.finish()
        self._tallies[index].add(parts)
        if self._shows_reasoning:
            return parts
        return [part for part in parts if not isinstance(part, Reasoning)]

    def _end(self, index: int, sample: CompletionOutput) -> dict[str, object]:
        reason = sample.finish_reason
        if reason == FinishReason.STOP.value and self._tallies[index].is_for_tools:
            reason = CALLED
        return {
            "logprobs": self._logprobs(sample.token_ids, sample),
            "finish_reason": reason,
            "stop_reason": sample.stop_reason,
        }

    def _logprobs(self, ids: Sequence[int], sample: CompletionOutput) -> dict[str, object] | None:
        """Of every token sampled, also those of calls and of reasoning."""
        if self._num_top is None:
            return None
        return chat_logprobs(self._tokenizer, ids, sample.logprobs or (), self._num_top)


def _delta(part: Part) -> dict[str, object]:
    match part:
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return _thought(text)
        case ToolCall(index, call_id, name):
            function = {"name": name, "arguments": ""}
            head = {"index": index, "id": call_id, "type": "function", "function": function}
            return {"tool_calls": [head]}
        case ToolArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _thought(text: str) -> dict[str, object]:
    """Under both names that clients look for."""
    return {"reasoning_content": text, "reasoning": text}


def _spelt_call(call: WholeCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}
