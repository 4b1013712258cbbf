# SPDX-License-Identifier: Apache-2.0
"""What a client may send, field by field. Types are strict: "5" is no number and 1 is no boolean.

A field that octavo does not know is kept in ``model_extra``; ``sampling.refuse_unsupported``
decides what becomes of it. ``null`` always means "not given".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class StreamOptions(BaseModel):
    """``include_usage`` adds a last chunk with the counts; ``continuous_usage_stats`` fills all."""

    model_config = ConfigDict(strict=True, extra="allow")

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationRequest(BaseModel):
    """The fields that both ways of asking share; ranges are ``SamplingParams``'s business."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Int64 | None = None
    max_tokens: Int64 | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: Int64 | None = None
    stop: Annotated[Any, Field(description="a string, or an array of strings")] = None
    top_k: Int64 | None = None
    min_p: float | None = None
    min_tokens: Int64 | None = None
    stop_token_ids: list[Int64] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    best_of: Int64 | None = None
    on_overflow: str | None = None
    timeout_s: float | None = None
    queue_timeout_s: float | None = None
    ttft_timeout_s: float | None = None
    add_special_tokens: bool | None = None
    priority: Int64 | None = None
    service_tier: str | None = None
    service_class: str | None = None
    user: str | None = None
    cache_salt: str | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: Annotated[Any, Field(description='a boolean, or "never"')] = None
    return_timeline: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    bad_words: list[str] | None = None
    allowed_token_ids: list[Int64] | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    logprobs_mode: str | None = None
    prompt_logprobs: Int64 | None = None
    response_format: Annotated[Any, Field(description="text, json_object or json_schema")] = None
    structured_outputs: Annotated[Any, Field(description="one form that the answer has")] = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def repeats_usage(self) -> bool:
        options = self.stream_options
        return bool(options and options.include_usage and options.continuous_usage_stats)


class CompletionRequest(GenerationRequest):
    """The body of POST /v1/completions. ``logprobs`` is a count here, and a switch in chat."""

    prompt: Annotated[Any, Field(description="text, token ids, or an array of either")]
    logprobs: Int64 | None = None
    echo: bool | None = None

    @property
    def only_echoes(self) -> bool:
        """The idiom for scoring a prompt: give it back with its logprobs, and no answer."""
        return bool(self.echo) and self.max_tokens == 0


class ChatMessage(BaseModel):
    """``content`` is text, or an array of ``{"type": "text", "text": ...}`` parts.

    An assistant's message may have ``tool_calls``, and its reasoning under either name; a tool's
    says by ``tool_call_id`` which call it answers.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ChatRequest(GenerationRequest):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: Int64 | None = None
    logprobs: bool | None = None
    top_logprobs: Int64 | None = None
    add_generation_prompt: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Annotated[
        Any, Field(description='"none", "auto", "required", or an object that names a function')
    ] = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
