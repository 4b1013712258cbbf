# SPDX-License-Identifier: Apache-2.0
"""Tools and reasoning over the wire: what is asked, what the model sees, what comes back."""

from __future__ import annotations

import json

import pytest
from serverkit import MODEL, ReciteEngine, connect, events_of, make_app

import templatekit
from chatkit import make_parser
from octavo.chat.dialect import ToolFormat
from octavo.server.openai.chat import ChatChoices, ReadyChat
from octavo.types.config import ChatConfig
from octavo.types.errors import InvalidRequest
from octavo.types.outputs import CompletionOutput, RequestOutput
from octavo.types.sampling_params import SamplingParams

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "weather", "parameters": PARAMETERS},
}
ARGUMENTS = '{"city": "Zürich"}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'


def reciting(answer: str, source: str = templatekit.HERMES, **options) -> ReciteEngine:
    engine = ReciteEngine(answer, **options)
    engine.tokenizer = templatekit.TemplateTokenizer(engine.tokenizer, source)
    return engine


async def post(body: dict, engine: ReciteEngine, **options):
    async with connect(make_app(engine, **options)) as client:
        return await client.post("/v1/chat/completions", json={"messages": HELLO, **body})


async def stream(body: dict, engine: ReciteEngine) -> list[dict]:
    response = await post({**body, "stream": True}, engine)
    return [event["choices"][0] for event in events_of(response.text)]


async def test_a_call_is_an_answer():
    (choice,) = (await post({"tools": [TOOL]}, reciting(f"Sure.\n{CALL}"))).json()["choices"]
    message = choice["message"]
    (call,) = message["tool_calls"]
    assert (message["content"], choice["finish_reason"]) == ("Sure.", "tool_calls")
    assert call["function"] == {"name": "get_weather", "arguments": ARGUMENTS}
    assert call["type"] == "function"
    assert call["id"].startswith("call_")


async def test_calls_alone_have_no_content():
    (choice,) = (await post({"tools": [TOOL]}, reciting(CALL + CALL))).json()["choices"]
    assert choice["message"]["content"] is None
    ids = {call["id"] for call in choice["message"]["tool_calls"]}
    assert len(ids) == 2


async def test_a_stream_gives_the_name_and_then_the_arguments():
    choices = await stream({"tools": [TOOL]}, reciting(f"Sure.\n{CALL}"))
    assert "".join(one["delta"].get("content") or "" for one in choices) == "Sure."
    deltas = [call for one in choices for call in one["delta"].get("tool_calls", ())]
    head, *rest = deltas
    assert head["function"] == {"name": "get_weather", "arguments": ""}
    assert (head["index"], head["type"]) == (0, "function")
    assert len(rest) > 3  # as they come
    assert all(set(one) == {"index", "function"} and one["index"] == 0 for one in rest)
    assert all(set(one["function"]) == {"arguments"} for one in rest)
    assert "".join(one["function"]["arguments"] for one in rest) == ARGUMENTS
    assert [one["finish_reason"] for one in choices if one["finish_reason"]] == ["tool_calls"]
    assert choices[-1]["delta"] == {}


async def test_calls_of_a_stream_have_indexes_of_their_own():
    choices = await stream({"tools": [TOOL]}, reciting(CALL + "\n" + CALL))
    deltas = [call for one in choices for call in one["delta"].get("tool_calls", ())]
    heads = [one for one in deltas if "id" in one]
    assert [one["index"] for one in heads] == [0, 1]
    assert len({one["id"] for one in heads}) == 2


async def test_cut_by_max_tokens_in_a_call():
    body = {"tools": [TOOL], "max_tokens": len(f"{CALL.partition('city')[0]}ci")}
    engine = reciting(CALL)
    (choice,) = (await post(body, engine)).json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "length"
    assert ARGUMENTS.startswith(call["function"]["arguments"])
    choices = await stream(body, engine)
    assert [one["finish_reason"] for one in choices if one["finish_reason"]] == ["length"]


def test_a_call_that_a_stop_string_cuts_is_not_to_be_made():
    text = CALL.partition("city")[0]
    for end, reason in ((text, "stop"), (CALL.partition("\n</tool")[0], "tool_calls")):
        choices = ChatChoices(
            ReciteEngine().tokenizer, None, lambda: make_parser(ToolFormat.HERMES)
        )
        output = Chunk.of(end, end="stop")
        assert choices.whole(0, output, output.outputs[0])["finish_reason"] == reason


async def test_logprobs_are_of_every_token():
    body = {"tools": [TOOL], "logprobs": True}
    (choice,) = (await post(body, reciting(CALL))).json()["choices"]
    whole = choice["logprobs"]["content"]
    assert len(whole) == len(CALL.encode()) + 1
    parts = [one["logprobs"] for one in await stream(body, reciting(CALL))]
    assert [entry for part in parts if part for entry in part["content"]] == whole


async def test_without_tools_there_are_no_calls():
    for body in ({}, {"tools": []}, {"tools": [TOOL], "tool_choice": "none"}):
        (choice,) = (await post(body, reciting(CALL))).json()["choices"]
        assert choice["message"] == {"role": "assistant", "content": CALL, "refusal": None}
        assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("choice", "answer"),
    [
        ("required", f'[{{"name": "get_weather", "arguments": {ARGUMENTS}}}]'),
        ({"type": "function", "function": {"name": "get_weather"}}, ARGUMENTS),
    ],
)
@pytest.mark.parametrize("source", [templatekit.PLAIN, templatekit.HERMES, templatekit.THINKING])
async def test_a_forced_call_is_constrained_and_read(choice, answer, source):
    engine = reciting(answer, source)
    body = {"tools": [TOOL], "tool_choice": choice}
    (got,) = (await post(body, engine)).json()["choices"]
    (call,) = got["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": ARGUMENTS}
    assert got["finish_reason"] == "tool_calls"
    form = engine.requests[0].params.structured_outputs
    assert form is not None
    assert form.closes_in_time
    assert "city" in (form.json or "")


async def test_tokens_with_logprobs_are_the_models_own():
    engine = reciting(ARGUMENTS)
    body = {"tools": [TOOL], "tool_choice": "required", "logprobs": True}
    await post(body, engine)
    assert engine.requests[0].params.structured_outputs.closes_in_time is False


def test_a_schema_that_cannot_be_compiled_is_the_tools():
    ready = ReadyChat({}, SamplingParams(), lambda: None, is_forced=True)
    with pytest.raises(InvalidRequest, match=r"^tools is too deep") as caught, ready.own_names():
        raise InvalidRequest("structured_outputs.json is too deep", param="structured_outputs.json")
    assert caught.value.param == "tools"
    with pytest.raises(InvalidRequest, match=r"^it by tools is") as caught, ready.own_names():
        raise InvalidRequest("it by structured_outputs.json is too long", param="max_tokens")
    assert caught.value.param == "max_tokens"
    with pytest.raises(InvalidRequest, match=r"^n is") as caught, ready.own_names():
        raise InvalidRequest("n is too large", param="n")


async def test_no_room_for_a_forced_call_is_said_in_the_callers_words():
    body = {"tools": [TOOL], "tool_choice": "required", "max_completion_tokens": 3}
    error = (await post(body, reciting("x"))).json()["error"]
    assert error["param"] == "max_completion_tokens"
    assert error["message"].startswith("max_completion_tokens leaves 3 tokens; a complete call of")
    assert "structured_outputs" not in error["message"]
    assert "closes_in_time" not in error["message"]


async def test_the_model_sees_tools_and_history():
    engine = reciting("ok")
    call = {"id": "c1", "type": "function"}
    call["function"] = {"name": "get_weather", "arguments": ARGUMENTS}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
    ]
    assert (await post({"messages": messages, "tools": [TOOL]}, engine)).status_code == 200
    prompt = engine.requests[0].prompt
    assert json.dumps(TOOL, ensure_ascii=False) in prompt
    assert f'<tool_call>{{"name": "get_weather", "arguments": {ARGUMENTS}}}</tool_call>' in prompt
    assert "<|tool|>sunny\n" in prompt


async def test_reasoning_under_both_names():
    engine = reciting("I think.\n</think>\n\nYes.", templatekit.THINKING)
    message = (await post({}, engine)).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == ("Yes.", "I think.")
    assert message["reasoning_content"] == message["reasoning"]
    deltas = [one["delta"] for one in await stream({}, engine)]
    for name in ("reasoning", "reasoning_content"):
        assert "".join(delta.get(name, "") for delta in deltas) == "I think."
    assert "".join(delta.get("content", "") for delta in deltas) == "Yes."


async def test_reasoning_may_be_left_out_or_left_in():
    engine = reciting("I think.</think>Yes.", templatekit.THINKING)
    message = (await post({"include_reasoning": False}, engine)).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Yes.", "refusal": None}
    plain = await post({}, engine, chat=ChatConfig(reasoning_parser="none"))
    assert plain.json()["choices"][0]["message"]["content"] == "I think.</think>Yes."


async def test_reasoning_of_an_earlier_turn_by_either_name():
    for name in ("reasoning", "reasoning_content"):
        engine = reciting("ok", templatekit.THINKING)
        messages = [*HELLO, {"role": "assistant", "content": "b", name: "a"}, *HELLO]
        await post({"messages": messages}, engine)
        assert "<|assistant|><think>a</think>b\n" in engine.requests[0].prompt


async def test_variables_of_the_template():
    engine = reciting("Yes.", templatekit.THINKING)
    await post({"chat_template_kwargs": {"enable_thinking": False}}, engine)
    await post({"reasoning_effort": "none"}, engine)
    chat = ChatConfig(default_chat_template_kwargs='{"enable_thinking": false}')
    await post({}, engine, chat=chat)
    assert all(one.prompt.endswith("<think>\n\n</think>\n\n") for one in engine.requests)
    assert len(engine.requests) == 3


async def test_the_last_message_goes_on():
    engine = reciting(" Rome.")
    messages = [*HELLO, {"role": "assistant", "content": "It is"}]
    await post({"messages": messages, "continue_final_message": True}, engine)
    assert engine.requests[0].prompt == "<|user|>Hi\n<|assistant|>It is"


class Chunk:
    """What one step says about two samples."""

    @staticmethod
    def of(*texts: str, end: str | None = None) -> RequestOutput:
        samples = tuple(
            CompletionOutput(index=i, text=text, token_ids=(), finish_reason=end)
            for i, text in enumerate(texts)
        )
        return RequestOutput("r", None, (1,), samples, end is not None)


def test_samples_do_not_mix():
    tool_text = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
    choices = ChatChoices(ReciteEngine().tokenizer, None, lambda: make_parser(ToolFormat.HERMES))
    seen: dict[int, list[dict]] = {0: [], 1: []}
    for first, second in zip(tool_text, "x" * len(tool_text), strict=True):
        for sample in Chunk.of(first, second).outputs:
            seen[sample.index] += choices.deltas(sample.index, Chunk.of("", ""), sample)
    for sample in Chunk.of("", "", end="stop").outputs:
        seen[sample.index] += choices.deltas(sample.index, Chunk.of("", ""), sample)
    assert [seen[i][-1]["finish_reason"] for i in (0, 1)] == ["tool_calls", "stop"]
    assert "".join(one["delta"].get("content", "") for one in seen[1]) == "x" * len(tool_text)
    assert not [one for one in seen[0] if "content" in one["delta"]]


def named(name: str) -> dict:
    return {"type": "function", "function": {"name": name}}


def message(**fields) -> dict:
    return {"messages": [*HELLO, {"role": "assistant", "content": "a", **fields}]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": "x"}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [named("a b")]}, "tools[0].function.name"),
        ({"tools": [TOOL, TOOL]}, "tools[1]"),
        ({"tools": [named(f"t{i}") for i in range(129)]}, "tools"),
        ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": named("other")}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"functions": [{"name": "a"}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"messages": [{"role": "function", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]},
         "messages[0].tool_calls"),
        ({"messages": [{"role": "user", "content": "a", "reasoning": "b"}]},
         "messages[0].reasoning"),
        (message(function_call={"name": "a"}), "messages[1].function_call"),
        (message(audio={"id": "a"}), "messages[1].audio"),
        (message(tool_calls=[{}]), "messages[1].tool_calls[0]"),
        (message(tool_calls=5), "messages[1].tool_calls"),
        (message(tool_calls=[{"id": "a", "function": {"name": "a", "arguments": "{"}}]),
         "messages[1].tool_calls[0].function.arguments"),
        (message(tool_calls=[{"id": "a", "function": {"name": "a", "arguments": "[1]"}}]),
         "messages[1].tool_calls[0].function.arguments"),
        (message(tool_calls=[{"id": "a", "function": {"name": "a", "arguments": "[" * 9999}}]),
         "messages[1].tool_calls[0].function.arguments"),
        (message(tool_calls=[{"id": "a", "function": {"name": "a", "arguments": '{"a": NaN}'}}]),
         "messages[1].tool_calls[0].function.arguments"),
        (message(tool_calls=[{"id": "a", "function": {"name": "a", "arguments": r'"\ud800"'}}]),
         "messages[1].tool_calls[0].function.arguments"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template": "x"}, "chat_template"),
        ({"documents": "x"}, "documents"),
        ({"continue_final_message": True, "add_generation_prompt": True},
         "continue_final_message"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
    ],
)  # fmt: skip
async def test_names_what_it_cannot_take(body, param):
    response = await post(body, reciting("x"))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert param.split(".")[0] in error["message"]


async def test_the_templates_own_words_are_a_bad_request():
    source = "{{ raise_exception('only users may speak') }}"
    response = await post({"model": MODEL}, reciting("x", source))
    assert response.status_code == 400
    assert "only users may speak" in response.json()["error"]["message"]
