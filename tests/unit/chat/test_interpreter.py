# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

import templatekit
from chatkit import call, content_of, parts_of
from fakes import ByteTokenizer
from octavo.chat.dialect import ContentFormat, Dialect, detect
from octavo.chat.interpreter import Conversation, Interpreter
from octavo.chat.parts import Content, Reasoning
from octavo.chat.tools import Tool, ToolChoice, ToolMode
from octavo.types.errors import InvalidRequest
from octavo.types.sampling_params import SamplingParams
from octavo.types.structured_outputs import StructuredOutputs

USER = {"role": "user", "content": "Hi"}
TOOL = Tool("get_time", "tells the time", {"properties": {"zone": {"type": "string"}}})
OTHER = Tool("rest")
CALLS = [{"id": "x", "type": "function", "function": {"name": "get_time", "arguments": {"z": "é"}}}]
HISTORY = [
    USER,
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "content": "noon", "tool_call_id": "x"},
    {"role": "tool", "content": "late", "tool_call_id": "y"},
]
REQUIRED = ToolChoice(ToolMode.REQUIRED)


def make(source: str, *, control=(), variables=None, dialect: Dialect | None = None) -> Interpreter:
    tokenizer = templatekit.TemplateTokenizer(ByteTokenizer(), source, control=control)
    return Interpreter(
        tokenizer,
        dialect or detect(source),
        new_token=lambda: "0123456789abcdef" * 2,
        variables=variables,
    )


def ask(source: str, **options):
    options = {"messages": [USER], **options}
    return make(source).prepare(Conversation(**options))


def test_plain_talk_is_only_rendered():
    chat = ask(templatekit.PLAIN)
    assert chat.text == "<|user|>Hi\n<|assistant|>"
    params = SamplingParams(max_tokens=3)
    assert chat.apply(params) == params
    assert parts_of(chat.new_parser(), ["<tool_call>"]) == [Content("<tool_call>")]


def test_tools_reach_a_template_that_takes_them():
    chat = ask(templatekit.HERMES, tools=[TOOL])
    described = json.dumps(TOOL.described(), ensure_ascii=False)
    assert chat.text == f"<|tools|>{described}\n<|user|>Hi\n<|assistant|>"
    text = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    assert parts_of(chat.new_parser(), text)[1:] == call(0, "get_time", "{}")[1:]


def test_calls_and_results_reach_a_template_that_takes_them():
    text = ask(templatekit.HERMES, messages=HISTORY).text
    assert '<tool_call>{"name": "get_time", "arguments": {"z": "é"}}</tool_call>' in text
    assert "<|tool|>noon\n<|tool|>late\n" in text


def test_tools_are_told_to_a_model_without_them():
    system = {"role": "system", "content": "Be brief."}
    text = ask(templatekit.PLAIN, messages=[system, USER], tools=[TOOL]).text
    assert text.startswith("<|system|>Be brief.\n\nYou can call these functions.")
    assert '{"name": "get_time", "description": "tells the time", "parameters": ' in text
    assert '<tool_call>\n{"name": "function_name", "arguments": {"parameter": "value"}}' in text
    assert text.endswith("<|user|>Hi\n<|assistant|>")
    assert ask(templatekit.PLAIN, tools=[TOOL]).text.startswith("<|system|>You can call")


def test_tools_are_told_by_the_user_where_nobody_else_may_speak():
    source = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}{% endfor %}" + templatekit.PLAIN
    )
    text = ask(source, tools=[TOOL]).text
    assert text.startswith("<|user|>You can call these functions.")
    assert text.endswith("\n\nHi\n<|assistant|>")
    system = {"role": "system", "content": "Be brief."}
    with pytest.raises(InvalidRequest, match="no system"):
        ask(source, messages=[system, USER], tools=[TOOL])


def test_results_carry_the_names_of_their_tools():
    source = "{{ tools }}{% for m in messages if m.role == 'tool' %}{{ m.name }};{% endfor %}"
    interpreter = make(source, dialect=detect(source, tool_call_parser="hermes"))
    assert interpreter.prepare(Conversation(messages=HISTORY)).text == "Noneget_time;;"


# Their templates want what no conversation has: a message of functions; documents.
UNFIT = {"fireworks-ai/firefunction-v1", "CohereForAI/c4ai-command-r-v01"}


def test_published_templates_take_a_conversation_with_tools(data_dir):
    """In the template's own way or told, the model sees the tool and the result."""
    lines = (data_dir / "tokenizers" / "chat_templates.jsonl").read_text().splitlines()
    history = [USER, {**HISTORY[1], "tool_calls": [{**CALLS[0], "id": "abcdefghi"}]}]
    history.append({"role": "tool", "content": "noon", "tool_call_id": "abcdefghi"})
    for item in map(json.loads, lines):
        if item["model"] not in UNFIT:
            text = (
                make(item["chat_template"])
                .prepare(Conversation(messages=history, tools=[TOOL]))
                .text
            )
            assert "get_time" in text, item["model"]
            assert "noon" in text, item["model"]


def test_calls_and_results_are_told_too():
    text = ask(templatekit.PLAIN, messages=HISTORY).text
    assert text == (
        '<|user|>Hi\n<|assistant|><tool_call>\n{"name": "get_time", "arguments": {"z": "é"}}\n'
        "</tool_call>\n<|user|><tool_response>\nnoon\n</tool_response>\n"
        "<tool_response>\nlate\n</tool_response>\n<|assistant|>"
    )


def test_a_told_model_is_read_in_the_way_it_was_told():
    chat = ask(templatekit.PLAIN, tools=[TOOL])
    text = 'Well.\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    parts = parts_of(chat.new_parser(), text)
    assert (content_of(parts), parts[1].name) == ("Well.", "get_time")


def test_none_hides_the_tools():
    chat = ask(templatekit.HERMES, tools=[TOOL], choice=ToolChoice(ToolMode.NONE))
    assert chat.text == "<|user|>Hi\n<|assistant|>"
    text = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    assert parts_of(chat.new_parser(), text) == [Content(text)]


@pytest.mark.parametrize("source", [templatekit.PLAIN, templatekit.HERMES])
def test_a_named_tool_is_the_only_one_that_is_shown(source):
    chat = ask(source, tools=[TOOL, OTHER], choice=ToolChoice(ToolMode.REQUIRED, "rest"))
    assert "rest" in chat.text
    assert "get_time" not in chat.text
    params = chat.apply(SamplingParams())
    assert params.structured_outputs is not None
    assert json.loads(params.structured_outputs.json) == OTHER.schema()
    assert parts_of(chat.new_parser(), '{"a": 1}')[1:] == call(0, "rest", '{"a": 1}')[1:]


def test_what_is_told_fits_what_is_forced():
    assert "JSON array of the calls" in ask(templatekit.PLAIN, tools=[TOOL], choice=REQUIRED).text
    named = ask(templatekit.PLAIN, tools=[TOOL], choice=ToolChoice(ToolMode.REQUIRED, "get_time"))
    assert "the arguments for get_time as a JSON object" in named.text


def test_a_forced_call_and_another_form_exclude_each_other():
    chat = ask(templatekit.PLAIN, tools=[TOOL], choice=REQUIRED)
    with pytest.raises(InvalidRequest) as caught:
        chat.apply(SamplingParams(structured_outputs=StructuredOutputs(json_object=True)))
    assert caught.value.param == "tool_choice"


def test_one_call_where_no_more_are_wanted():
    chat = ask(templatekit.HERMES, tools=[TOOL, OTHER], parallel_calls=False)
    one = '<tool_call>{"name": "rest", "arguments": {}}</tool_call>'
    parts = parts_of(chat.new_parser(), one + one + "and so on")
    assert [type(part).__name__ for part in parts] == ["ToolCall", "ToolArguments", "Content"]


def test_reasoning_that_the_prompt_has_begun():
    chat = ask(templatekit.THINKING)
    assert chat.text.endswith("<|assistant|><think>\n")
    assert parts_of(chat.new_parser(), ["a</think>b"]) == [Reasoning("a"), Content("b")]
    quiet = ask(templatekit.THINKING, variables={"enable_thinking": False})
    assert parts_of(quiet.new_parser(), ["b"]) == [Content("b")]


def test_a_forced_call_leaves_no_room_for_reasoning():
    chat = ask(templatekit.THINKING, tools=[OTHER], choice=REQUIRED)
    assert chat.text.endswith("<|assistant|><think>\n\n</think>\n\n")
    formed = ask(templatekit.THINKING, has_form=True)
    assert formed.text.endswith("<|assistant|><think>\n\n</think>\n\n")
    assert parts_of(formed.new_parser(), ["{}"]) == [Content("{}")]


def test_reasoning_of_the_history_reaches_the_template():
    thought = {"role": "assistant", "content": "b", "reasoning_content": "a"}
    assert "<think>a</think>b" in ask(templatekit.THINKING, messages=[USER, thought]).text


@pytest.mark.parametrize(("effort", "thinks"), [("none", False), ("high", True), (None, True)])
def test_effort_turns_reasoning_off_and_on(effort, thinks):
    chat = ask(templatekit.THINKING, reasoning_effort=effort)
    assert chat.text.endswith("<think>\n") is thinks


def test_effort_where_there_is_none_to_make():
    assert ask(templatekit.PLAIN, reasoning_effort="none").text
    with pytest.raises(InvalidRequest) as caught:
        ask(templatekit.PLAIN, reasoning_effort="high")
    assert caught.value.param == "reasoning_effort"


def test_variables_of_the_server_and_of_the_request():
    source = "{{ a }}{{ b }}{{ documents }}"
    interpreter = make(source, variables={"a": 1, "b": 1})
    asked = Conversation(messages=[USER], variables={"b": 2}, documents=[{"t": 3}])
    assert interpreter.prepare(asked).text == "12[{'t': 3}]"


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "add_generation_prompt"])
def test_variables_that_are_fields(name):
    with pytest.raises(InvalidRequest) as caught:
        ask(templatekit.PLAIN, variables={name: None})
    assert caught.value.param == f"chat_template_kwargs.{name}"


@pytest.mark.parametrize("words", ["It is", "It is ", " It is\n"])
def test_the_last_message_goes_on(words):
    messages = [USER, {"role": "assistant", "content": words}]
    chat = ask(templatekit.PLAIN, messages=messages, continues=True, add_generation_prompt=False)
    assert chat.text == f"<|user|>Hi\n<|assistant|>{words}"
    parts = [{"type": "text", "text": words}]
    messages = [USER, {"role": "assistant", "content": parts}]
    again = ask(templatekit.PLAIN, messages=messages, continues=True, add_generation_prompt=False)
    assert again.text == chat.text


@pytest.mark.parametrize(
    ("source", "content", "prompts"),
    [(templatekit.PLAIN, "", False), ("fixed", "a", False), (templatekit.PLAIN, "a", True)],
)
def test_what_cannot_go_on(source, content, prompts):
    messages = [{"role": "assistant", "content": content}]
    with pytest.raises(InvalidRequest) as caught:
        ask(source, messages=messages, continues=True, add_generation_prompt=prompts)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (ContentFormat.STRING, "['a', 'b\\nc']"),
        (ContentFormat.EITHER, "['a', [{'type': 'text', 'text': 'b'}, "
         "{'type': 'text', 'text': 'c'}]]"),
        (ContentFormat.PARTS, "[[{'type': 'text', 'text': 'a'}], [{'type': 'text', 'text': 'b'}, "
         "{'type': 'text', 'text': 'c'}]]"),
    ],
)  # fmt: skip
def test_content_in_the_form_that_the_template_takes(form, text):
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": parts}]
    source = "{{ messages | map(attribute='content') | list }}"
    interpreter = make(source, dialect=Dialect(content=form))
    assert interpreter.prepare(Conversation(messages=messages)).text == text


def test_tags_that_are_control_tokens_stay_in_the_text():
    control = ["[TOOL_CALLS]", "[ARGS]", "[INST]"]
    interpreter = make(templatekit.MISTRAL, control=control)
    first = ByteTokenizer.vocab_size
    with_tools = interpreter.prepare(Conversation(messages=[USER], tools=[TOOL]))
    assert with_tools.apply(SamplingParams()).keep_special_ids == (first, first + 1)
    assert interpreter.prepare(Conversation(messages=[USER])).keep_special_ids == ()


def test_ids_of_calls_suit_the_template():
    text = '[TOOL_CALLS][{"name": "get_time", "arguments": {}}]'
    chat = ask(templatekit.MISTRAL, tools=[TOOL])
    (head, *_) = parts_of(chat.new_parser(), text)
    assert head.call_id == "012345678"
    history = [{"role": "assistant", "content": "", "tool_calls": [{**CALLS[0], "id": "short"}]}]
    with pytest.raises(InvalidRequest, match="length 9"):
        ask(templatekit.MISTRAL, messages=history)
    (head, *_) = parts_of(
        ask(templatekit.HERMES, tools=[TOOL]).new_parser(),
        '<tool_call>{"name": "get_time"}</tool_call>',
    )
    assert head.call_id == "call_0123456789abcdef01234567"
