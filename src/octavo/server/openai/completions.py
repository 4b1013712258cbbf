# SPDX-License-Identifier: Apache-2.0
"""POST /v1/completions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.admission import PromptDict
from octavo.server.errors import shown
from octavo.server.openai import answer, beam_search
from octavo.server.openai.answer import Parsed, Service
from octavo.server.openai.generation import Job
from octavo.server.openai.logprobs import CompletionLogprobs, TokenLogprobs, prompt_logprobs
from octavo.server.openai.sampling import completion_params, refuse_unsupported, spelt_as
from octavo.server.openai.schemas import CompletionRequest
from octavo.server.openai.standing import standing
from octavo.server.openai.structured import own_names
from octavo.types.errors import InvalidRequest
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.ports import Tokenizer

PROMPTS_MAX = 1024  # prompts in one body, as in vLLM


async def create(request: Request, service: Service) -> Response:
    return await answer.create(request, service, parse)


def parse(body: bytes, service: Service, job_id: str) -> Parsed:
    """Validate and tokenise: all the work that is too long for the event loop."""
    asked = CompletionRequest.model_validate_json(body)
    answer.check_model(asked.model, service)
    refuse_unsupported(asked, service.unknown_fields)
    params = completion_params(asked)
    adds_special = asked.add_special_tokens is not False
    prompts = [
        _encoded(item, service, add_special_tokens=adds_special)
        for item in parse_prompts(asked.prompt)
    ]
    with own_names(asked), spelt_as(beam_search.own_names(asked)):
        job = Job.admit(
            f"cmpl-{job_id}",
            prompts,
            beam_search.beam_search_params(asked, params) or params,
            service.engine.admission,
            discards_answer=asked.only_echoes,
            standing=standing(asked),
            clips_max_tokens=asked.max_tokens is None,
        )
    choices = CompletionChoices(
        service.tokenizer,
        asked.logprobs,
        echoes=bool(asked.echo),
        answers=not asked.only_echoes,
        skips_special=params.skip_special_tokens,
        num_prompt_top=asked.prompt_logprobs,
    )
    return Parsed(asked, job, choices)


def _encoded(prompt: str | list[int], service: Service, *, add_special_tokens: bool) -> PromptDict:
    if isinstance(prompt, list):
        return {"prompt_token_ids": prompt}
    ids = service.encode(prompt, add_special_tokens=add_special_tokens)
    return {"prompt": prompt, "prompt_token_ids": ids}


def parse_prompts(value: object) -> list[str | list[int]]:
    """A text, a list of texts, token ids, or lists of token ids; anything else names its place."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        message = "prompt must be a string, a non-empty array of strings, an array of token ids"
        message += f" or an array of those, got {shown(value)}"
        raise InvalidRequest(message, param="prompt")
    if type(value[0]) is int:
        return [_token_ids("prompt", value)]
    if len(value) > PROMPTS_MAX:
        message = f"prompt holds {len(value)} prompts, the most is {PROMPTS_MAX}"
        raise InvalidRequest(message, param="prompt")
    return [_prompt(f"prompt[{i}]", item, value[0]) for i, item in enumerate(value)]


def _prompt(path: str, item: object, first: object) -> str | list[int]:
    if isinstance(item, str) and isinstance(first, str):
        return item
    if isinstance(item, list) and isinstance(first, list):
        return _token_ids(path, item)
    message = "must be a string or an array of token ids, the same as the first"
    raise InvalidRequest(f"{path} {message}, got {shown(item)}", param=path)


def _token_ids(path: str, ids: list[object]) -> list[int]:
    for index, token_id in enumerate(ids):
        if type(token_id) is not int:
            where = f"{path}[{index}]"
            raise InvalidRequest(f"{where} must be a token id, got {shown(token_id)}", param=where)
    return ids  # type: ignore[return-value]  # every element was just checked


class CompletionChoices:
    """One sample's part of a completion, whole or as deltas.

    ``echoes`` puts the prompt before the answer; without ``answers`` it stands alone.
    """

    kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(
        self,
        tokenizer: Tokenizer,
        num_top: int | None,
        *,
        echoes: bool,
        answers: bool,
        skips_special: bool,
        num_prompt_top: int | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._num_prompt_top = num_prompt_top
        self._echoes = echoes
        self._answers = answers
        self._skips_special = skips_special
        self._logprobs: dict[int, CompletionLogprobs] = {}  # by choice index, as the next
        self._started: set[int] = set()

    def opening(self, num_choices: int) -> list[dict[str, object]]:
        return []

    def whole(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]:
        choice = self._choice(index, output, sample)
        if self._num_prompt_top is not None:
            choice["prompt_logprobs"] = prompt_logprobs(output, self._num_prompt_top)
        return choice

    def envelope(self, output: RequestOutput) -> dict[str, object]:
        return {}

    def deltas(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> list[dict[str, object]]:
        return [self._choice(index, output, sample)]

    def _choice(
        self, index: int, output: RequestOutput, sample: CompletionOutput
    ) -> dict[str, object]:
        is_first = index not in self._started
        self._started.add(index)
        echoed = output if self._echoes and is_first else None
        answered = sample if self._answers else None
        return {
            "index": index,
            "text": self._text(echoed, answered),
            "logprobs": self._add_logprobs(index, echoed, answered),
            "finish_reason": sample.finish_reason if self._answers else "length",
            "stop_reason": sample.stop_reason if self._answers else None,
        }

    def _text(self, echoed: RequestOutput | None, answered: CompletionOutput | None) -> str:
        text = "" if answered is None else answered.text
        if echoed is None:
            return text
        prompt = echoed.prompt
        if prompt is None:
            ids = echoed.prompt_token_ids
            prompt = self._tokenizer.decode(ids, skip_special_tokens=self._skips_special)
        return prompt + text

    def _add_logprobs(
        self, index: int, echoed: RequestOutput | None, answered: CompletionOutput | None
    ) -> dict[str, object] | None:
        if self._num_top is None:
            return None
        builder = self._logprobs.get(index)
        if builder is None:
            builder = CompletionLogprobs(
                self._tokenizer, self._num_top, skips_special=self._skips_special
            )
            self._logprobs[index] = builder
        token_ids: list[int] = []
        logprobs: list[TokenLogprobs | None] = []
        if echoed is not None:
            token_ids += echoed.prompt_token_ids
            logprobs += echoed.prompt_logprobs or ()
        if answered is not None:
            token_ids += answered.token_ids
            logprobs += answered.logprobs or ()
        return builder.add(token_ids, logprobs)
