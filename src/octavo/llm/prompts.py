# SPDX-License-Identifier: Apache-2.0
"""Every shape in which a caller may write prompts and conversations, brought to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from octavo.engine.admission import PromptDict
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import InvalidRequest
from octavo.types.param_checks import shown
from octavo.types.request import Standing
from octavo.types.sampling_params import SamplingParams

Params = SamplingParams | BeamSearchParams
Prompt = str | Sequence[int] | Mapping[str, object]
Message = Mapping[str, object]

_BYTES = bytes | bytearray | memoryview  # sequences of numbers to Python, undecoded text to callers
_WANTED = "a prompt is a string, a list of token ids, or a dict with prompt or prompt_token_ids"


def normalise_prompts(prompts: Prompt | Sequence[Prompt]) -> list[PromptDict]:
    """One prompt or many, as a list. Raises ``InvalidRequest`` that names the index."""
    if isinstance(prompts, str | Mapping) or _is_ids(prompts):
        return [_plain(prompts, None)]
    if not isinstance(prompts, Sequence) or isinstance(prompts, _BYTES):
        raise InvalidRequest(f"{_WANTED}; got {type(prompts).__name__}", param="prompts")
    return [_plain(prompt, idx) for idx, prompt in enumerate(prompts)]


def normalise_params(params: Params | Sequence[Params] | None, count: int) -> list[Params]:
    """One set of parameters per prompt: the default, one shared, or a list of equal length."""
    if params is None:
        params = SamplingParams()
    if isinstance(params, Params):
        return [params] * count
    if not isinstance(params, list | tuple):
        raise InvalidRequest(
            f"sampling_params must be SamplingParams or a list of them, got {shown(params)}",
            param="sampling_params",
        )
    shared = list(params)
    if len(shared) != count:
        raise InvalidRequest(
            f"got {len(shared)} sampling_params for {count} prompts", param="sampling_params"
        )
    if not all(isinstance(one, Params) for one in shared):
        message = "sampling_params must be SamplingParams or BeamSearchParams"
        raise InvalidRequest(message, param="sampling_params")
    return shared


def normalise_standings(
    standing: Standing | Sequence[Standing] | None,
    priority: int | Sequence[int] | None,
    count: int,
) -> list[Standing]:
    """One ``Standing`` per prompt, likewise; a ``priority`` goes before the one in there."""
    standings = _for_each("standing", Standing() if standing is None else standing, count)
    if not all(isinstance(one, Standing) for one in standings):
        raise InvalidRequest("standing must be a Standing", param="standing")
    if priority is None:
        return standings
    priorities = _for_each("priority", priority, count)
    return [replace(s, priority=p) for s, p in zip(standings, priorities, strict=True)]


def _for_each(name: str, value: object, count: int) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str | _BYTES):
        return [value] * count
    if len(value) != count:
        raise InvalidRequest(f"got {len(value)} of {name} for {count} prompts", param=name)
    return list(value)


def normalise_conversations(
    messages: Sequence[Message] | Sequence[Sequence[Message]],
) -> list[list[dict[str, object]]]:
    """One conversation or many, as a list of conversations with string contents."""
    items = _non_empty(messages)
    if isinstance(items[0], Mapping):
        return [normalise_conversation(items)]
    return [normalise_conversation(conversation) for conversation in items]


def normalise_conversation(messages: object) -> list[dict[str, object]]:
    """Exactly one conversation, with string contents. Raises ``InvalidRequest``."""
    return [_message(one) for one in _non_empty(messages)]


def _non_empty(items: object) -> Sequence[object]:
    if not isinstance(items, Sequence) or isinstance(items, str) or not items:
        raise InvalidRequest("messages must be a non-empty list of dicts", param="messages")
    return items


def _message(message: object) -> dict[str, object]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InvalidRequest("a message is a dict with a role and a content", param="messages")
    plain = dict(message)
    content = plain.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        plain["content"] = "\n".join(_part_text(part) for part in content)
    elif not isinstance(content, str) and not (content is None and len(plain) > 2):
        raise InvalidRequest("a message's content must be text", param="messages")
    return plain


def _part_text(part: object) -> str:
    if isinstance(part, Mapping) and part.get("type") in ("text", "input_text"):
        text = part.get("text")
        if isinstance(text, str):
            return text
    raise InvalidRequest("only content parts of type text are supported", param="messages")


def _is_ids(value: object) -> bool:
    """Whether it begins with a number: then it is one prompt of ids, not a list of prompts."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str | _BYTES)
        and len(value) > 0
        and isinstance(value[0], int)
    )


def _plain(prompt: object, idx: int | None) -> PromptDict:
    param = "prompts" if idx is None else f"prompts[{idx}]"
    fields = _as_dict(prompt)
    unknown = [key for key in fields if key not in PromptDict.__annotations__]
    if unknown:
        raise InvalidRequest(f"{param}: {unknown[0]!r} is not supported", param=param)
    text, ids = fields.get("prompt"), fields.get("prompt_token_ids")
    salt = fields.get("cache_salt")
    plain = PromptDict()
    if isinstance(text, str):
        plain["prompt"] = text
    if isinstance(salt, str):
        plain["cache_salt"] = salt
    if isinstance(ids, Sequence) and not isinstance(ids, _BYTES):
        if all(type(item) is int for item in ids):
            plain["prompt_token_ids"] = list(ids)
    if not plain.keys() - {"cache_salt"} or len(plain) != len(fields):
        raise InvalidRequest(f"{param}: {_WANTED}; got {_describe(prompt)}", param=param)
    return plain


def _as_dict(prompt: object) -> dict[str, object]:
    if isinstance(prompt, Mapping):
        return {str(key): value for key, value in prompt.items() if value is not None}
    return {"prompt" if isinstance(prompt, str) else "prompt_token_ids": prompt}


def _describe(prompt: object) -> str:
    text = repr(prompt)
    return text if len(text) <= 60 else f"{text[:57]}..."
