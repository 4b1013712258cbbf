# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from octavo.chat.dialect import REASONING_PARSERS, ContentFormat, ToolFormat, detect
from octavo.types.config import CHAT_CHOICES
from octavo.types.errors import InvalidConfig

# What their makers say that these models write. All others have no tools in their template.
CALLERS = {
    "mistralai/Mistral-7B-Instruct-v0.3 (JSON Schema)": ToolFormat.MISTRAL,
    "NousResearch/Hermes-2-Pro-Llama-3-8B (JSON Schema)": ToolFormat.HERMES,
    "meta-llama/Llama-3.1-8B-Instruct": ToolFormat.LLAMA3_JSON,
    "meta-llama/Llama-3.2-11B-Vision-Instruct": ToolFormat.LLAMA3_JSON,
    "HuggingFaceTB/SmolLM3-3B": ToolFormat.HERMES,
}
# These have ways of calling that are not read here: they are told about tools in plain text.
OTHER_CALLERS = {
    "CohereForAI/c4ai-command-r-v01",
    "MadeAgents/Hammer2.1",
    "Qwen/Qwen3.5-4B",
    "openbmb/MiniCPM3-4B",
    "moonshotai/Kimi-K2-Thinking",
    "zai-org/GLM-5.1",
}
THINKERS = {
    "Qwen/Qwen3.5-4B",
    "HuggingFaceTB/SmolLM3-3B",
    "moonshotai/Kimi-K2-Thinking",
    "zai-org/GLM-5.1",
}
LISTENERS_TO_PARTS = {
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3.5-4B",
    "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "zai-org/GLM-5.1",
}


@pytest.fixture(scope="module")
def templates(data_dir: Path) -> dict[str, str]:
    lines = (data_dir / "tokenizers" / "chat_templates.jsonl").read_text().splitlines()
    return {item["model"]: item["chat_template"] for item in map(json.loads, lines)}


def test_published_templates_are_read_as_their_makers_say(templates):
    assert templates.keys() >= CALLERS.keys() | OTHER_CALLERS | THINKERS | LISTENERS_TO_PARTS
    for model, source in templates.items():
        dialect = detect(source)
        assert dialect.tools is CALLERS.get(model), model
        assert dialect.renders_tools is (model in CALLERS), model
        assert (dialect.reasoning is not None) is (model in THINKERS), model
        assert (dialect.content is ContentFormat.EITHER) is (model in LISTENERS_TO_PARTS), model


def test_a_template_that_knows_parts_only():
    source = (
        "{% for m in messages %}{% for c in m['content'] %}{{ c.text }}{% endfor %}{% endfor %}"
    )
    assert detect(source).content is ContentFormat.PARTS
    assert detect(source, content_format="string").content is ContentFormat.STRING


def test_tools_that_are_only_spoken_of():
    source = "<tool_call> You have no tools. {{ messages }} tools {% if x %}"
    assert not detect(source).renders_tools
    assert detect(source + "{%- for t in tools %}").renders_tools


@pytest.mark.parametrize("text", ["{%", "{{ a ", "for a in ", "for ", " ", "a", "<tool_call>"])
def test_a_hostile_template_is_read_in_linear_time(text):
    started = time.process_time()
    detect("<tool_call>" + text * (500_000 // len(text)))
    assert time.process_time() - started < 5


def test_switches_of_a_template(templates):
    assert detect(templates["Qwen/Qwen3.5-4B"]).switches == {"enable_thinking"}
    assert detect(None).switches == frozenset()


def test_pythonic_by_its_instructions():
    source = "{{ tools | tojson }} Use the format [func_name1(params_name1=params_value1)]"
    assert detect(source).tools is ToolFormat.PYTHONIC


def test_a_name_wins_over_the_template(templates):
    source = templates["meta-llama/Llama-3.1-8B-Instruct"]
    dialect = detect(source, tool_call_parser="hermes", reasoning_parser="deepseek_r1")
    assert dialect.tools is ToolFormat.HERMES
    assert dialect.reasoning is REASONING_PARSERS["deepseek_r1"]
    assert detect(templates["Qwen/Qwen3.5-4B"], reasoning_parser="none").reasoning is None
    assert not detect(None, tool_call_parser="hermes").renders_tools


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("tool_call_parser", "tool_call_parser"),
        ("reasoning_parser", "reasoning_parser"),
        ("chat_template_content_format", "content_format"),
    ],
)
def test_names_are_those_of_the_configuration(field, option):
    for name in CHAT_CHOICES[field]:
        detect(None, **{option: name})
    with pytest.raises(InvalidConfig, match=field):
        detect(None, **{option: "psychic"})


def test_tags_that_must_stay_in_the_text(templates):
    mistral = detect(templates["mistralai/Mistral-7B-Instruct-v0.3 (JSON Schema)"])
    assert mistral.tags(calls=True) == ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
    assert mistral.tags(calls=False) == ()
    smol = detect(templates["HuggingFaceTB/SmolLM3-3B"])
    assert smol.tags(calls=False) == ("<think>", "</think>")
    assert set(detect(None).tags(calls=True)) == {"<tool_call>", "</tool_call>"}
