# SPDX-License-Identifier: Apache-2.0
"""The body of POST /v1/responses, field by field; types are strict.

What is not listed here means the same as in /v1/chat/completions and is checked there: sampling
settings, timeouts, and names that nobody knows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.server.openai.schemas import Int64


class TextOptions(BaseModel):
    """``format`` is ``response_format`` of chat, less one level of nesting."""

    model_config = ConfigDict(strict=True, extra="forbid")

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningOptions(BaseModel):
    """``summary`` asks for nothing here: the model's own words are shown, and no digest of them."""

    model_config = ConfigDict(strict=True, extra="allow")

    effort: str | None = None
    summary: str | None = None


class ResponsesRequest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    input: Annotated[Any, Field(description="a string, or an array of items")]
    instructions: str | None = None
    max_output_tokens: Int64 | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Annotated[Any, Field(description="a mode, or the tool to call")] = None
    parallel_tool_calls: bool | None = None
    include: list[str] | None = None
    top_logprobs: Int64 | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    max_tool_calls: Int64 | None = None

    @property
    def wants_logprobs(self) -> bool:
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())


LOGPROBS = "message.output_text.logprobs"
