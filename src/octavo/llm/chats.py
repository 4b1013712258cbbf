# SPDX-License-Identifier: Apache-2.0
"""What ``LLM.chat`` takes beside the messages, and the prompt that it makes of all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.chat.interpreter import Conversation, Interpreter
from octavo.chat.tools import Tool, make_tool
from octavo.types.config import ChatConfig
from octavo.types.errors import InvalidRequest
from octavo.types.ports import Tokenizer

EXTRAS = ("tools", "chat_template_kwargs", "continue_final_message")


def prompt_text(
    tokenizer: Tokenizer,
    config: ChatConfig,
    messages: Sequence[dict[str, object]],
    add_generation_prompt: bool,
    extras: Mapping[str, object],
) -> str:
    """The prompt, complete. The answer to it is text, calls included: nothing is parsed here.

    Raises ``InvalidRequest`` that names the argument.
    """
    continues = bool(extras.get("continue_final_message"))
    asked = Conversation(
        messages=messages,
        tools=_tools(extras.get("tools")),
        variables=_variables(extras.get("chat_template_kwargs")),
        continues=continues,
        add_generation_prompt=add_generation_prompt and not continues,
    )
    interpreter = Interpreter.configured(tokenizer, config, new_token=str)
    return interpreter.prepare(asked).text


def _tools(value: object) -> list[Tool]:
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidRequest("tools must be a list of dicts", param="tools")
    return [_tool(f"tools[{i}]", one) for i, one in enumerate(value)]


def _tool(path: str, value: object) -> Tool:
    function = value.get("function") if isinstance(value, Mapping) else None
    if not isinstance(function, Mapping):
        wanted = f'{path} must be a dict of type "function" with a function'
        raise InvalidRequest(wanted, param=path)
    return make_tool(
        f"{path}.function",
        function.get("name"),
        function.get("description"),
        function.get("parameters"),
    )


def _variables(value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidRequest("chat_template_kwargs must be a dict", param="chat_template_kwargs")
    return {str(name): one for name, one in value.items()}
