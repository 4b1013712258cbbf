# SPDX-License-Identifier: Apache-2.0
"""One turn of a conversation: the path that every endpoint takes that speaks in messages.

An endpoint with a wire format of its own spells what it was asked as a ``ChatRequest``, so that
each field means the same and is refused for the same reasons on every one of them. Back come
``Part``s, which its ``Writer`` spells in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from octavo.chat.parts import AnswerParser
from octavo.engine.admission import PromptDict
from octavo.server.errors import ApiError, to_api_error
from octavo.server.openai import answer, chat
from octavo.server.openai.answer import Service
from octavo.server.openai.generation import Job
from octavo.server.openai.sampling import chat_names, refuse_unsupported, spelt_as
from octavo.server.openai.schemas import ChatRequest
from octavo.server.openai.standing import standing
from octavo.server.openai.structured import own_names
from octavo.types.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Turn:
    """A conversation that is ready to be continued, by one sample."""

    job: Job
    parser: AnswerParser
    shows_reasoning: bool = True


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked, in chat's fields; ``names`` says how the caller spells them.

    ``names`` maps paths, or the beginnings of paths: ``messages[2]`` -> ``input[1]``.
    """

    fields: Mapping[str, Any]
    names: Mapping[str, str]


def prompt_of(wish: Wish, service: Service) -> PromptDict:
    """Text and ids of the conversation. Raises ``ApiError`` in the caller's spelling."""
    try:
        return chat.prompt_of(_checked(wish, service), service)
    except (InvalidRequest, ValidationError) as error:
        raise respelt(error, wish.names) from error


def prepare(wish: Wish, service: Service, job_id: str) -> Turn:
    """Validate, render, tokenise, admit. Raises ``ApiError`` in the caller's spelling."""
    try:
        request = _checked(wish, service)
        ready = chat.prepare(request, service)
        with own_names(request), ready.own_names(), spelt_as(chat_names(request)):
            job = Job.admit(
                job_id,
                [ready.prompt],
                ready.params,
                service.engine.admission,
                standing=standing(request),
            )
    except (InvalidRequest, ValidationError) as error:
        raise respelt(error, wish.names) from error
    return Turn(job, ready.new_parser(), request.include_reasoning is not False)


def _checked(wish: Wish, service: Service) -> ChatRequest:
    # Always a stream inside: whole answers are then told apart and counted as streams are.
    request = ChatRequest.model_validate({**wish.fields, "stream": True})
    answer.check_model(request.model, service)
    refuse_unsupported(request, service.unknown_fields)
    return request


def respelt(error: Exception, names: Mapping[str, str]) -> ApiError:
    """The same refusal with the field's name as the caller knows it, also in the message."""
    refusal = to_api_error(error)
    param = refusal.param
    known = [name for name in names if param is not None and _is_within(param, name)]
    if not param or not known:
        return refusal
    old = max(known, key=len)
    new = names[old]
    message = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", lambda _: new, refusal.message)
    return ApiError(refusal.status, message, param=new + param[len(old) :], code=refusal.code)


def _is_within(path: str, name: str) -> bool:
    return path == name or path.startswith((f"{name}.", f"{name}["))
