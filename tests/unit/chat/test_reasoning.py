# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from chatkit import TOOLS, call, numbered_ids, parts_of
from octavo.chat.dialect import REASONING_PARSERS, Dialect, ToolFormat
from octavo.chat.parts import Content, Part, Reasoning

OPENED = "...<think>\n"
CALL = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
CASES: dict[str, tuple[str, str, str, list[Part]]] = {
    "by the model": (
        "qwen3",
        "",
        "<think>\nHm. </th\n\n</think>\n\nYes.",
        [Reasoning("Hm. </th"), Content("Yes.")],
    ),
    "opened by the prompt": (
        "qwen3",
        OPENED,
        "Hm.\n</think>\n\nYes.",
        [Reasoning("Hm."), Content("Yes.")],
    ),
    "opened by both": (
        "qwen3",
        OPENED,
        "<think>Hm.</think>Yes.",
        [Reasoning("Hm."), Content("Yes.")],
    ),
    "closed by the prompt": (
        "qwen3",
        "<think>\n\n</think>\n\n",
        "Yes.",
        [Content("Yes.")],
    ),
    "none": ("qwen3", "", " Yes, <think> is a tag.", [Content(" Yes, <think> is a tag.")]),
    "empty": ("qwen3", "", "<think>\n\n</think>\n\nYes.", [Content("Yes.")]),
    "cut in reasoning": ("qwen3", "", "<think>\nHm, 🌍", [Reasoning("Hm, 🌍")]),
    "cut in the closing tag": ("qwen3", OPENED, "Hm.</thi", [Reasoning("Hm.</thi")]),
    "cut in the opening tag": ("qwen3", "", "<thi", [Content("<thi")]),
    "nothing but space": ("qwen3", OPENED, " \n", []),
    "the second is text": (
        "qwen3",
        "",
        "<think>a</think>b <think>c</think>",
        [Reasoning("a"), Content("b <think>c</think>")],
    ),
    "a call after it": (
        "qwen3",
        OPENED,
        f"Hm.</think>\n\n{CALL}",
        [Reasoning("Hm."), *call(0, "get_time", "{}")],
    ),
    "a call inside is a thought": (
        "qwen3",
        OPENED,
        f"{CALL}</think>ok",
        [Reasoning(CALL), Content("ok")],
    ),
    "always, without a tag": (
        "deepseek_r1",
        "",
        "Hm.</think>Yes.",
        [Reasoning("Hm."), Content("Yes.")],
    ),
    "always, but closed by the prompt": (
        "deepseek_r1",
        "<think></think>",
        "Yes.",
        [Content("Yes.")],
    ),
    "brackets": ("mistral", "", "[THINK]Hm.[/THINK]Yes.", [Reasoning("Hm."), Content("Yes.")]),
}


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("name", "prompt", "text", "parts"), CASES.values(), ids=CASES)
def test_reasoning_is_told_apart(name, prompt, text, parts, one_by_one):
    dialect = Dialect(
        tools=ToolFormat.HERMES, renders_tools=True, reasoning=REASONING_PARSERS[name]
    )
    parser = dialect.parser(new_call_id=numbered_ids(), tools=TOOLS, prompt=prompt)
    assert parts_of(parser, text if one_by_one else [text]) == parts


def test_an_answer_that_goes_on_is_no_reasoning():
    dialect = Dialect(reasoning=REASONING_PARSERS["deepseek_r1"])
    parser = dialect.parser(new_call_id=numbered_ids(), prompt="It is", continues=True)
    assert parts_of(parser, ["Rome."]) == [Content("Rome.")]


@pytest.mark.parametrize(
    ("name", "prompt", "closed"),
    [
        ("qwen3", "a\n<think>\n", "a\n<think>\n\n</think>\n\n"),
        ("qwen3", "a\n", "a\n"),
        ("deepseek_r1", "a\n", "a\n<think>\n\n</think>\n\n"),
        ("deepseek_r1", "a</think>\n", "a</think>\n"),
    ],
)
def test_a_prompt_whose_reasoning_is_closed(name, prompt, closed):
    assert Dialect(reasoning=REASONING_PARSERS[name]).close_reasoning(prompt) == closed
    assert Dialect().close_reasoning(prompt) == prompt


def test_an_answer_that_goes_on_is_not_interrupted_by_reasoning():
    dialect = Dialect(reasoning=REASONING_PARSERS["deepseek_r1"])
    assert dialect.close_reasoning("It is", continues=True) == "It is"
