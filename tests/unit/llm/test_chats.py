# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import templatekit
from fakes import ByteTokenizer
from octavo.llm.chats import prompt_text
from octavo.types.config import ChatConfig

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "get_time"}}


def text_of(source: str, config: ChatConfig = ChatConfig(), **extras: object) -> str:  # noqa: B008
    tokenizer = templatekit.TemplateTokenizer(ByteTokenizer(), source)
    return prompt_text(tokenizer, config, [USER], True, extras)


def test_tools_reach_the_template_or_are_told():
    assert text_of(templatekit.HERMES, tools=[TOOL]).startswith('<|tools|>{"type": "function", ')
    assert text_of(templatekit.PLAIN, tools=[TOOL]).startswith("<|system|>You can call")
    assert text_of(templatekit.PLAIN, tools=None) == "<|user|>hi\n<|assistant|>"


def test_variables_of_the_call_win_over_those_of_the_engine():
    config = ChatConfig(default_chat_template_kwargs='{"enable_thinking": false}')
    assert text_of(templatekit.THINKING, config).endswith("</think>\n\n")
    extras = {"chat_template_kwargs": {"enable_thinking": True}}
    assert text_of(templatekit.THINKING, config, **extras).endswith("<think>\n")
