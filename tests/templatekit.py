# SPDX-License-Identifier: Apache-2.0
"""Chat templates in the manner of well-known models, and a tokenizer that renders one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.tokenizer.chat_template import ChatTemplate

PLAIN = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
HERMES = (
    "{% if tools %}<|tools|>{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}"
    "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endif %}"
    "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
THINKING = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n"
    "{% else %}<think>\n{% endif %}{% endif %}"
)
MISTRAL = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}"
    "{{ raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
    "{% endif %}[TOOL_CALLS]{{ c.function | tojson }}{% endfor %}"
    "{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
)


class TemplateTokenizer:
    """A tokenizer with another chat template; with ``control`` as control tokens beside its own."""

    def __init__(self, tokenizer, source: str, *, control: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._template = ChatTemplate(source, special_tokens={"bos_token": "", "eos_token": ""})
        self._first_control = tokenizer.vocab_size
        self._control = list(control)

    def __getattr__(self, name: str):
        return getattr(self._tokenizer, name)

    @property
    def chat_template(self) -> str:
        return self._template.source

    @property
    def vocab_size(self) -> int:
        return self._first_control + len(self._control)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if text in self._control:
            return [self._first_control + self._control.index(text)]
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        if token_id >= self._first_control:
            return self._control[token_id - self._first_control].encode()
        return self._tokenizer.token_bytes(token_id)

    def is_special(self, token_id: int) -> bool:
        return token_id >= self._first_control or self._tokenizer.is_special(token_id)

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, variables=variables
        )
