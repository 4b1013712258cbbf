# SPDX-License-Identifier: Apache-2.0
"""The official clients' helpers for structured answers and tools, on the demo model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest
from pydantic import BaseModel

from serving import serving

pytestmark = pytest.mark.model

MODEL = "smollm2"
PLAIN = {"api_key": "none", "max_retries": 0}
HELLO = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}


class City(BaseModel):
    name: str
    is_capital: bool


@pytest.fixture(scope="module")
def url(smollm2_path: Path) -> Iterator[str]:
    flags = ("--served-model-name", MODEL, "--max-model-len", "1024")
    with pytest.MonkeyPatch.context() as patch, serving(smollm2_path, *flags) as served:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield served.url


def test_openai_parses_answers(url: str):
    with openai.OpenAI(base_url=f"{url}/v1", **PLAIN) as client:
        chat = client.chat.completions.parse(
            model=MODEL, messages=HELLO, response_format=City, max_tokens=200, temperature=0
        )
        assert isinstance(chat.choices[0].message.parsed, City)
        response = client.responses.parse(
            model=MODEL, input=HELLO, text_format=City, max_output_tokens=200, temperature=0
        )
        assert isinstance(response.output_parsed, City)


def test_a_required_tool_is_called(url: str):
    with openai.OpenAI(base_url=f"{url}/v1", **PLAIN) as client:
        tool = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
        answer = client.responses.create(
            model=MODEL,
            input=HELLO,
            tools=[tool],
            tool_choice="required",
            parallel_tool_calls=False,
            max_output_tokens=200,
            temperature=0,
        )
        (call,) = [item for item in answer.output if item.type == "function_call"]
        assert call.name == "get_weather"
        assert '"city"' in call.arguments


def test_anthropic_calls_any_tool(url: str):
    with anthropic.Anthropic(base_url=url, **PLAIN) as client:
        answer = client.messages.create(
            model=MODEL,
            messages=HELLO,
            max_tokens=200,
            tools=[{"name": "get_weather", "input_schema": SCHEMA}],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            extra_body={"temperature": 0},
        )
        (block,) = [block for block in answer.content if block.type == "tool_use"]
        assert isinstance(block.input["city"], str)
        assert answer.stop_reason == "tool_use"
