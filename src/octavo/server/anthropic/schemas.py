# SPDX-License-Identifier: Apache-2.0
"""The body of POST /v1/messages, field by field; types are strict.

What is not listed here means the same as in /v1/chat/completions and is checked there: further
sampling settings, timeouts, and names that nobody knows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from octavo.server.openai.schemas import Int64


class InputMessage(BaseModel):
    """``content`` is text, or an array of blocks."""

    model_config = ConfigDict(strict=True, extra="forbid")

    role: Literal["user", "assistant", "system"]
    content: Any


class Thinking(BaseModel):
    """``budget_tokens`` is checked and not enforced: how long to think is the model's choice."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[Int64, Field(ge=1024)] | None = None


class ToolChoice(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputConfig(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountRequest(BaseModel):
    """What decides the prompt: the body of POST /v1/messages/count_tokens."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str
    messages: Annotated[list[InputMessage], Field(min_length=1)]
    system: Annotated[Any, Field(description="a string, or an array of text blocks")] = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    metadata: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class MessagesRequest(CountRequest):
    max_tokens: Int64
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: Int64 | None = None
    top_p: float | None = None
