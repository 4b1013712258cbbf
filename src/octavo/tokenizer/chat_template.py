# SPDX-License-Identifier: Apache-2.0
"""A model's chat template: messages to prompt text.

Templates are written for transformers, so they see what it offers: trimmed blocks, loop controls,
``raise_exception``, ``strftime_now``, ``tojson`` without ASCII escapes, the ``generation`` tag,
``bos_token`` and ``eos_token``. They come out of downloaded files: ``template_sandbox.py`` keeps
them from reaching anything and from working for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from octavo.types.errors import InvalidRequest

if TYPE_CHECKING:  # jinja2 takes 30 ms to import: only those who render pay
    from jinja2 import Template

SOURCE_CHARS_MAX = 1 << 20  # the longest known template has some 20,000


class ChatTemplate:
    """Compiled when first used, then immutable; safe for many threads.

    ``now`` tells templates the local time (some write today's date into the system prompt).
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str],
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._now = now

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt text. ``variables`` are the template's own: tools, enable_thinking and so on.

        Raises ``InvalidRequest`` with the template's own words when it refuses the messages, and
        when it is broken or works too much.
        """
        from octavo.tokenizer.template_sandbox import budget

        values: dict[str, object] = {
            **self._special_tokens,
            "tools": None,
            "documents": None,
            **(variables or {}),
            "messages": list(messages),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            template = self._compiled
            with budget(values):
                return template.render(values)
        except InvalidRequest:
            raise
        except Exception as error:  # whatever a template does wrong is about these messages
            raise InvalidRequest(
                f"the model's chat template refuses these messages: {_words(error)}",
                param="messages",
            ) from error

    def check(self) -> None:
        """Raise ``InvalidRequest`` unless it compiles: what it does with messages shows later."""
        try:
            self._compiled  # noqa: B018 (compiles once)
        except InvalidRequest:
            raise
        except Exception as error:
            raise InvalidRequest(
                f"the chat template cannot be compiled: {_words(error)}", param="chat_template"
            ) from error

    @cached_property
    def _compiled(self) -> Template:
        from octavo.tokenizer.template_sandbox import Sandbox, budget

        if len(self.source) > SOURCE_CHARS_MAX:
            raise InvalidRequest(
                f"the model's chat template has {len(self.source)} characters, "
                f"at most {SOURCE_CHARS_MAX} are read",
                param="messages",
            )
        environment = Sandbox()
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._strftime
        with budget({}):
            return environment.from_string(self.source)

    def _strftime(self, form: str) -> str:
        return self._now().strftime(form)


def _raise_exception(message: object) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(str(message))


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())[:500]
    return text or type(error).__name__
