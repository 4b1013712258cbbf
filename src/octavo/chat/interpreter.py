# SPDX-License-Identifier: Apache-2.0
"""Between a conversation and a model: to it as a prompt, from it as the parts of an answer.

Every way of asking (chat, responses, messages) brings its wire format into a ``Conversation``; what
``prepare`` makes of it holds all that the request needs: the prompt, what the sampling parameters
must have, and a parser for each sample.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from octavo.chat.dialect import ContentFormat, Dialect, ToolFormat, detect
from octavo.chat.parts import AnswerParser
from octavo.chat.told import told
from octavo.chat.tools import Tool, ToolChoice, ToolMode, check_tools
from octavo.types.config import ChatConfig
from octavo.types.errors import InvalidRequest
from octavo.types.ports import Tokenizer
from octavo.types.sampling_params import SamplingParams
from octavo.types.structured_outputs import StructuredOutputs

Message = dict[str, object]

# Variables of templates that are fields of a request themselves.
RESERVED = frozenset(
    "add_generation_prompt chat_template continue_final_message documents messages tokenize "
    "tools".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What is asked, in the form that chat templates know.

    messages        ``role`` (system, user, assistant, tool), ``content`` (text, or a list of
                    ``{"type": "text", "text": ...}``); perhaps ``name``, ``tool_call_id``,
                    ``reasoning_content``, and ``tool_calls``: ``{"id", "type": "function",
                    "function": {"name", "arguments"}}``, the arguments as an object
    tools, choice   what may be called, and whether it must
    parallel_calls  more than one call may be made
    variables       of the template, as ``chat_template_kwargs``
    documents       for templates that know how to cite
    continues       the answer goes on where the last message ends
    reasoning_effort  None, or "none", "low", "medium", ...: as far as the template knows it
    has_form        the answer must have some form from its first token on: there is no reasoning
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    choice: ToolChoice = ToolChoice()  # noqa: RUF009 (frozen)
    parallel_calls: bool = True
    variables: Mapping[str, object] = field(default_factory=dict)
    documents: Sequence[object] | None = None
    add_generation_prompt: bool = True
    continues: bool = False
    reasoning_effort: str | None = None
    has_form: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedChat:
    """``text`` is the prompt, complete: encode it with ``add_special_tokens=False``."""

    text: str
    structured_outputs: StructuredOutputs | None
    keep_special_ids: tuple[int, ...]
    new_parser: Callable[[], AnswerParser]

    def apply(self, params: SamplingParams) -> SamplingParams:
        """The parameters, with what makes the answer readable. Raises ``InvalidRequest`` when the
        answer is to have another form than a call and a call is forced.
        """
        form = self.structured_outputs
        if form is not None and params.structured_outputs is not None:
            raise InvalidRequest(
                "tool_choice forces a call, and the answer cannot have another form as well",
                param="tool_choice",
            )
        if form is not None and (params.logprobs is not None or params.picks_best):
            # Tokens that only complete the answer have no logprobs that anybody has computed.
            form = replace(form, closes_in_time=False)
        return params.clone(
            structured_outputs=form or params.structured_outputs,
            keep_special_ids=(*params.keep_special_ids, *self.keep_special_ids),
        )


class Interpreter:
    """Safe for many threads. ``new_token`` gives at least 24 random letters and digits,
    of which the ids of calls are made; ``variables`` are the templates' unless a request says else.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        dialect: Dialect,
        *,
        new_token: Callable[[], str],
        variables: Mapping[str, object] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._dialect = dialect
        self._new_token = new_token
        self._variables = dict(variables or {})
        self._control_ids: dict[bool, tuple[int, ...]] = {}

    @classmethod
    def configured(
        cls, tokenizer: Tokenizer, config: ChatConfig, *, new_token: Callable[[], str]
    ) -> Interpreter:
        """For the tokenizer's chat template, which the configuration says how to read."""
        dialect = detect(
            tokenizer.chat_template,
            tool_call_parser=config.tool_call_parser,
            reasoning_parser=config.reasoning_parser,
            content_format=config.chat_template_content_format,
        )
        variables = json.loads(config.default_chat_template_kwargs or "{}")
        return cls(tokenizer, dialect, new_token=new_token, variables=variables)

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    def prepare(self, asked: Conversation) -> PreparedChat:
        """Validate and render. Costs up to seconds for hostile templates: not for an event loop.

        Raises ``InvalidRequest`` that names the field in OpenAI's words.
        """
        check_tools(asked.tools, asked.choice)
        tools = _offered(asked)
        text = self._render(asked, tools)
        form = self._dialect.forced_call(tools, asked.choice, parallel=asked.parallel_calls)
        if form is not None or asked.has_form:  # which has no room for thoughts
            text = self._dialect.close_reasoning(text, continues=asked.continues)

        def new_parser() -> AnswerParser:
            return self._dialect.parser(
                new_call_id=self._new_call_id,
                tools=tools,
                choice=asked.choice,
                parallel=asked.parallel_calls,
                prompt=text,
                continues=asked.continues,
            )

        return PreparedChat(
            text=text,
            structured_outputs=form,
            keep_special_ids=() if form is not None else self._keep_special_ids(bool(tools)),
            new_parser=new_parser,
        )

    def _render(self, asked: Conversation, tools: Sequence[Tool]) -> str:
        if asked.continues and asked.add_generation_prompt:
            raise InvalidRequest(
                "continue_final_message and add_generation_prompt exclude each other",
                param="continue_final_message",
            )
        messages = [dict(message) for message in asked.messages]
        variables = self._template_variables(asked)
        if self._dialect.renders_tools:
            variables["tools"] = [tool.described() for tool in tools] or None
            return self._rendered(asked, _with_names(messages), variables)
        if not tools and not any(_is_about_tools(message) for message in messages):
            return self._rendered(asked, messages, variables)
        plain = [_with_content(message, ContentFormat.STRING) for message in messages]
        try:
            return self._rendered(asked, told(plain, tools, asked.choice), variables)
        except InvalidRequest:
            if not tools or any(message.get("role") == "system" for message in messages):
                raise
        # Some templates refuse every system message, and the one refused here was ours.
        plain = told(plain, tools, asked.choice, role="user")
        return self._rendered(asked, plain, variables)

    def _rendered(
        self, asked: Conversation, messages: Sequence[Message], variables: Mapping[str, object]
    ) -> str:
        shaped = [_with_content(message, self._dialect.content) for message in messages]
        text = self._tokenizer.render_chat(
            shaped, add_generation_prompt=asked.add_generation_prompt, variables=variables
        )
        return _cut_after_last(text, shaped) if asked.continues else text

    def _template_variables(self, asked: Conversation) -> dict[str, object]:
        for name in asked.variables:
            if name in RESERVED:
                raise InvalidRequest(
                    f"chat_template_kwargs.{name}: give {name} as a field of the request",
                    param=f"chat_template_kwargs.{name}",
                )
        variables = {**self._variables, **self._effort(asked.reasoning_effort), **asked.variables}
        if asked.documents is not None:
            variables["documents"] = list(asked.documents)
        return variables

    def _effort(self, effort: str | None) -> dict[str, object]:
        """A wish for more or less reasoning, in the variables that the template has for it."""
        if effort is None:
            return {}
        switches = self._dialect.switches
        found: dict[str, object] = {}
        if "reasoning_effort" in switches:
            found["reasoning_effort"] = effort
        for name in ("enable_thinking", "thinking"):
            if name in switches:
                found[name] = effort != "none"
        if not found and effort != "none":
            raise InvalidRequest(
                "reasoning_effort: the model's chat template has no such setting; leave it out",
                param="reasoning_effort",
            )
        return found

    def _keep_special_ids(self, has_tools: bool) -> tuple[int, ...]:
        """Found when first asked for; two threads would find the same."""
        ids = self._control_ids.get(has_tools)
        if ids is None:
            ids = _control_ids(self._tokenizer, self._dialect.tags(calls=has_tools))
            self._control_ids[has_tools] = ids
        return ids

    def _new_call_id(self) -> str:
        token = self._new_token()
        if self._dialect.tools is ToolFormat.MISTRAL:
            return token[:9]  # its templates refuse others
        return f"call_{token[:24]}"


def _offered(asked: Conversation) -> Sequence[Tool]:
    """The tools that the model hears of."""
    if asked.choice.mode is ToolMode.NONE:
        return ()
    name = asked.choice.name
    return [tool for tool in asked.tools if name is None or tool.name == name]


def _with_names(messages: Sequence[Message]) -> list[Message]:
    """Results with the names of their tools, which templates want and OpenAI's format has not."""
    names: dict[str, str] = {}
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            match call:
                case {"id": str(call_id), "function": {"name": str(name)}}:
                    names[call_id] = name
    return [_with_name(message, names) for message in messages]


def _with_name(message: Message, names: Mapping[str, str]) -> Message:
    call_id = message.get("tool_call_id")
    name = names.get(call_id) if isinstance(call_id, str) else None
    return message if name is None else {"name": name, **message}


def _is_about_tools(message: Message) -> bool:
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


def _control_ids(tokenizer: Tokenizer, tags: Sequence[str]) -> tuple[int, ...]:
    """Those tags that are control tokens."""
    found: list[int] = []
    for tag in tags:
        ids = tokenizer.encode(tag, add_special_tokens=False)
        if len(ids) == 1 and tokenizer.is_special(ids[0]):
            found += ids
    return tuple(found)


def _with_content(message: Message, form: ContentFormat) -> Message:
    """The message with its content as the template takes it."""
    content = message.get("content")
    if isinstance(content, list) and form is ContentFormat.STRING:
        texts = [str(part.get("text", "")) for part in content if isinstance(part, dict)]
        return {**message, "content": "\n".join(texts)}  # as vLLM joins them
    if isinstance(content, str) and form is ContentFormat.PARTS:
        return {**message, "content": [{"type": "text", "text": content}] if content else []}
    return dict(message)


def _cut_after_last(text: str, messages: Sequence[Message]) -> str:
    """The prompt up to the end of the last message's own words.

    Templates trim, and close the message behind them; so its words are looked for.
    """
    last = _with_content(messages[-1], ContentFormat.STRING).get("content")
    words = last.strip() if isinstance(last, str) else ""
    start = text.rfind(words) if words else -1
    if start < 0:
        raise InvalidRequest(
            "continue_final_message needs a last message whose content the chat template renders"
            " as it is",
            param="continue_final_message",
        )
    trailing = str(last)[len(str(last).rstrip()) :]
    return text[: start + len(words)] + trailing
