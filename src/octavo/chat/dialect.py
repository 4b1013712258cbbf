# SPDX-License-Identifier: Apache-2.0
"""How a model writes calls and reasoning, and what its chat template takes; read off the template.

A template is a program, and what a model was trained to write cannot be computed from it. But it
spells the tags, in the history that it renders and in what it tells the model about tools.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from octavo.chat.call_parser import NewCallId
from octavo.chat.forced import forced_form, forced_syntax
from octavo.chat.json_calls import JsonCallParser, JsonSyntax
from octavo.chat.parts import AnswerParser
from octavo.chat.plain import FirstCallOnly, PlainParser
from octavo.chat.pythonic_calls import END_TAG, START_TAG, PythonicCallParser
from octavo.chat.reasoning import ReasoningParser, ReasoningTags
from octavo.chat.tools import Tool, ToolChoice, ToolMode
from octavo.types.config import CHAT_CHOICES, check_choice
from octavo.types.structured_outputs import StructuredOutputs


class ToolFormat(Enum):
    """How calls are written."""

    HERMES = "hermes"  # <tool_call>{"name": ..., "arguments": {...}}</tool_call>; Qwen too
    LLAMA3_JSON = "llama3_json"  # {"name": ..., "parameters": {...}} as the whole answer
    MISTRAL = "mistral"  # [TOOL_CALLS][{"name": ..., "arguments": {...}}]
    PYTHONIC = "pythonic"  # [name(key="value")]


class ContentFormat(Enum):
    """What the template takes as the content of a message."""

    STRING = "string"
    PARTS = "openai"  # a list of {"type": "text", "text": ...}
    EITHER = "either"


_SYNTAXES = {
    ToolFormat.HERMES: JsonSyntax(tag="<tool_call>", end_tag="</tool_call>"),
    ToolFormat.LLAMA3_JSON: JsonSyntax(tag="<|python_tag|>", bare=True),
    ToolFormat.MISTRAL: JsonSyntax(tag="[TOOL_CALLS]", named=True),
}
_FURTHER_TAGS = {
    ToolFormat.MISTRAL: ("[ARGS]", "[CALL_ID]"),
    ToolFormat.PYTHONIC: (START_TAG, END_TAG),
}

_THINK = ReasoningTags("<think>", "</think>")
REASONING_PARSERS = {
    "deepseek_r1": ReasoningTags("<think>", "</think>", always=True),
    "mistral": ReasoningTags("[THINK]", "[/THINK]"),
    "qwen3": _THINK,
}
_BLOCK_START, _BLOCK_END = re.compile(r"\{[{%]"), re.compile(r"[}%]\}")
_WALKS_CONTENT = re.compile(
    r"\bfor\s+\w+\s+in\s+(?:\w+(?:\.content\b|\[['\"]content['\"]\])|content\b)"
)
_TELLS_STRINGS = re.compile(r"\bis\s+(?:not\s+)?(?:string|iterable|sequence|mapping)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a model speaks. Immutable; one per server.

    tools           how it writes calls; None: in no way that is known here
    renders_tools   its template takes tools, calls and their results; else they have to be told to
                    it in plain text
    reasoning       the tags around its reasoning, if it has any
    content         what its template takes as the content of a message
    switches        variables of its template that turn reasoning on, off or up
    """

    tools: ToolFormat | None = None
    renders_tools: bool = False
    reasoning: ReasoningTags | None = None
    content: ContentFormat = ContentFormat.STRING
    switches: frozenset[str] = frozenset()

    def tags(self, *, calls: bool) -> tuple[str, ...]:
        """The texts that parsers look for, with ``calls`` also those around calls. Where they are
        control tokens, they must stay in the text.
        """
        found: list[str] = []
        if calls:
            syntax = _SYNTAXES.get(self._written, JsonSyntax())
            found += filter(None, (syntax.tag, syntax.end_tag))
            found += _FURTHER_TAGS.get(self._written, ())
        if self.reasoning is not None:
            found += (self.reasoning.start, self.reasoning.end)
        return tuple(found)

    def parser(
        self,
        *,
        new_call_id: NewCallId,
        tools: Sequence[Tool] = (),
        choice: ToolChoice = ToolChoice(),  # noqa: B008 (frozen)
        parallel: bool = True,
        prompt: str = "",
        continues: bool = False,
    ) -> AnswerParser:
        """A parser for one sample. ``prompt`` tells whether the reasoning has begun in it;
        ``continues``: it ends in the midst of the answer.
        """
        names = [tool.name for tool in tools]
        answer: AnswerParser = PlainParser()
        if choice.is_forced:
            syntax = forced_syntax(choice)
            return JsonCallParser(syntax, names=names, new_call_id=new_call_id)
        if tools and choice.mode is not ToolMode.NONE:
            answer = self._call_parser(names, new_call_id)
            answer = answer if parallel else FirstCallOnly(answer)
        if self.reasoning is None:
            return answer
        tags = self.reasoning
        starts_inside = self._starts_inside(prompt, tags, continues=continues)
        return ReasoningParser(tags, answer, starts_inside=starts_inside)

    def forced_call(
        self, tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool = True
    ) -> StructuredOutputs | None:
        """The form that the answer must have so that it is the call asked for; None if none is.

        ``parser`` reads it when it is given the same choice.
        """
        return forced_form(tools, choice, parallel=parallel) if choice.is_forced else None

    def close_reasoning(self, prompt: str, *, continues: bool = False) -> str:
        """The prompt, with reasoning that has begun in it closed: the answer comes next."""
        tags = self.reasoning
        if tags is None or not self._starts_inside(prompt, tags, continues=continues):
            return prompt
        opened = prompt if prompt.rstrip().endswith(tags.start) else f"{prompt}{tags.start}\n"
        return f"{opened.rstrip()}\n\n{tags.end}\n\n"

    @property
    def _written(self) -> ToolFormat:
        """Who is told about tools in plain text is told to write calls in Hermes' way."""
        return self.tools if self.renders_tools and self.tools else ToolFormat.HERMES

    def _call_parser(self, names: Collection[str], new_call_id: NewCallId) -> AnswerParser:
        if self._written is ToolFormat.PYTHONIC:
            return PythonicCallParser(names=names, new_call_id=new_call_id)
        return JsonCallParser(_SYNTAXES[self._written], names=names, new_call_id=new_call_id)

    def _starts_inside(self, prompt: str, tags: ReasoningTags, *, continues: bool = False) -> bool:
        text = prompt.rstrip()
        opens_anyway = tags.always and not continues and not text.endswith(tags.end)
        return text.endswith(tags.start) or opens_anyway


@lru_cache(maxsize=8)  # of few templates, for each of many conversations
def detect(
    chat_template: str | None,
    *,
    tool_call_parser: str = "auto",
    reasoning_parser: str = "auto",
    content_format: str = "auto",
) -> Dialect:
    """The dialect of a template; each part can be given by name instead.

    Raises ``InvalidConfig`` for a name that does not exist.
    """
    source = chat_template or ""
    form = _tool_format(source, tool_call_parser)
    return Dialect(
        tools=form,
        renders_tools=form is not None and _mentions_tools(source),
        reasoning=_reasoning(source, reasoning_parser),
        content=_content(source, content_format),
        switches=frozenset(
            name
            for name in ("enable_thinking", "thinking", "reasoning_effort")
            if re.search(rf"\b{name}\b", source)
        ),
    )


def _mentions_tools(source: str) -> bool:
    """Inside {{ ... }} or {% ... %}; in linear time, for the file may be hostile."""
    return any(
        re.search(r"\btools\b", _BLOCK_END.split(block, maxsplit=1)[0])
        for block in _BLOCK_START.split(source)[1:]
    )


def _tool_format(source: str, name: str) -> ToolFormat | None:
    check_choice("tool_call_parser", name, CHAT_CHOICES["tool_call_parser"])
    return _spelt_tool_format(source) if name == "auto" else ToolFormat(name)


def _spelt_tool_format(source: str) -> ToolFormat | None:
    if "[TOOL_CALLS]" in source:
        return ToolFormat.MISTRAL
    if "<tool_call>" in source:  # some put XML between the tags, which is another format
        return None if "<function=" in source or "<arg_key>" in source else ToolFormat.HERMES
    if "<|python_start|>" in source or re.search(r"\[func_name1\(", source):
        return ToolFormat.PYTHONIC
    if "<|python_tag|>" in source or re.search(r'"name": function name, "parameters"', source):
        return ToolFormat.LLAMA3_JSON
    return None


def _reasoning(source: str, name: str) -> ReasoningTags | None:
    check_choice("reasoning_parser", name, CHAT_CHOICES["reasoning_parser"])
    if name == "none":
        return None
    if name == "auto":
        if "</think>" in source:
            return _THINK
        return REASONING_PARSERS["mistral"] if "[/THINK]" in source else None
    return REASONING_PARSERS[name]


def _content(source: str, name: str) -> ContentFormat:
    check_choice("chat_template_content_format", name, CHAT_CHOICES["chat_template_content_format"])
    if name == "auto":
        if not _WALKS_CONTENT.search(source):
            return ContentFormat.STRING
        return ContentFormat.EITHER if _TELLS_STRINGS.search(source) else ContentFormat.PARTS
    return ContentFormat(name)
