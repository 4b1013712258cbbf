# SPDX-License-Identifier: Apache-2.0
"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.admission import PromptDict
from octavo.server.errors import shown
from octavo.server.openai import answer
from octavo.server.openai.answer import Parsed, Service
from octavo.server.openai.beam_search import beam_search_params
from octavo.server.openai.generation import Job
from octavo.server.openai.logprobs import chat_logprobs
from octavo.server.openai.sampling import (
    chat_names,
    chat_params,
    refuse_unsupported,
    spelt_as,
)
from octavo.server.openai.schemas import ChatMessage, ChatRequest
from octavo.server.openai.standing import standing
from octavo.types.errors import InvalidRequest
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.ports import Tokenizer


async def create(request: Request, service: Service) -> Response:
    return await answer.create(request, service, parse)


def parse(body: bytes, service: Service, job_id: str) -> Parsed:
    """Validate, render, tokenise: all the work that is too long for the event loop."""
    chat = ChatRequest.model_validate_json(body)
    answer.check_model(chat.model, service)
    refuse_unsupported(chat, service.unknown_fields)
    params = chat_params(chat)
    adds_generation_prompt = chat.add_generation_prompt is not False
    text = service.tokenizer.render_chat(
        [_message(i, message) for i, message in enumerate(chat.messages)],
        add_generation_prompt=adds_generation_prompt,
    )
    # The template has written the special tokens already; adding them again would double BOS.
    ids = service.encode(text, add_special_tokens=bool(chat.add_special_tokens))
    num_top = (chat.top_logprobs or 0) if chat.logprobs else None
    prompt: PromptDict = {"prompt": text, "prompt_token_ids": ids}
    with spelt_as(chat_names(chat)):
        job = Job.admit(
            f"chatcmpl-{job_id}",
            [prompt],
            beam_search_params(chat, params) or params,
            service.engine.admission,
            standing=standing(chat),
            clips_max_tokens=False,
        )
    return Parsed(chat, job, ChatChoices(service.tokenizer, num_top))


def _message(index: int, message: ChatMessage) -> dict[str, object]:
    """A message as templates know it: text content, and OpenAI's newer word for "system" undone."""
    where = f"messages[{index}]"
    if message.role in ("tool", "function"):
        raise InvalidRequest(f"{where}: tool calls are not supported yet", param=f"{where}.role")
    for name in ("tool_calls", "function_call", "audio"):
        if (message.model_extra or {}).get(name):
            path = f"{where}.{name}"
            raise InvalidRequest(f"{path} is not supported yet", param=path)
    rendered: dict[str, object] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": _content(f"{where}.content", message.content),
    }
    if message.name is not None:
        rendered["name"] = message.name
    return rendered


def _content(path: str, content: object) -> str:
    match content:
        case str():
            return content
        case list() if content:
            parts = [_part(f"{path}[{i}]", part) for i, part in enumerate(content)]
            return "\n".join(parts)  # as vLLM joins them
    raise InvalidRequest(
        f"{path} must be a string or a non-empty array of text parts, got {shown(content)}",
        param=path,
    )


def _part(path: str, part: object) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": str(kind)} if kind != "text":
            message = f"{path}: only text parts are supported, got type {shown(kind)}"
            raise InvalidRequest(message, param=f"{path}.type")
    message = f'{path} must be {{"type": "text", "text": "..."}}, got {shown(part)}'
    raise InvalidRequest(message, param=path)


class ChatChoices:
    """One sample's part of a chat answer, whole or as deltas."""

    def __init__(self, tokenizer: Tokenizer, num_top: int | None) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, num_choices: int) -> list[dict[str, object]]:
        """What every choice of a stream begins with."""
        delta = {"role": "assistant", "content": ""}
        return [
            {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
            for index in range(num_choices)
        ]

    def whole(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]:
        message = {"role": "assistant", "content": sample.text, "refusal": None}
        return {"index": index, "message": message, **self._end(sample)}

    def delta(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]:
        delta = {"content": sample.text} if sample.text else {}
        return {"index": index, "delta": delta, **self._end(sample)}

    def _end(self, sample: CompletionOutput) -> dict[str, object]:
        return {
            "logprobs": self._logprobs(sample.token_ids, sample),
            "finish_reason": sample.finish_reason,
            "stop_reason": sample.stop_reason,
        }

    def _logprobs(self, ids: Sequence[int], sample: CompletionOutput) -> dict[str, object] | None:
        if self._num_top is None:
            return None
        return chat_logprobs(self._tokenizer, ids, sample.logprobs or (), self._num_top)
