# SPDX-License-Identifier: Apache-2.0
"""What each way of writing calls is read as, whole and a character at a time."""

from __future__ import annotations

import pytest

from chatkit import call, make_parser, parts_of
from octavo.chat.dialect import ToolFormat
from octavo.chat.parts import Content, Part

A = '{"city": "Rome"}'
NESTED = '{"a": {"b": [1, 2.5e-3, {"c": null}]}, "d": [[], {}, true]}'
DEEP = "[" * 99 + "]" * 99
TRICKY = r'{"text": "</tool_call> [TOOL_CALLS] } ] \" \\", "u": "\u00e9 Grüße 🌍"}'

HERMES = {
    "one": (
        f'<tool_call>\n{{"name": "get_weather", "arguments": {A}}}\n</tool_call>',
        call(0, "get_weather", A),
    ),
    "two": (
        f'<tool_call>\n{{"name": "get_weather", "arguments": {A}}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>\n',
        [*call(0, "get_weather", A), *call(1, "get_time", "{}")],
    ),
    "text around": (
        f'Let me look.\n\n<tool_call>{{"name":"get_time","arguments":{A}}}</tool_call>\n\nDone.',
        [Content("Let me look."), *call(0, "get_time", A), Content("Done.")],
    ),
    "nested": (
        f'<tool_call>{{"name": "get_time", "arguments": {NESTED}}}</tool_call>',
        call(0, "get_time", NESTED),
    ),
    "tags in strings": (
        f'<tool_call>{{"name": "get_time", "arguments": {TRICKY}}}</tool_call>',
        call(0, "get_time", TRICKY),
    ),
    "an array in one tag": (
        f'<tool_call>[{{"name": "get_time", "arguments": {{}}}}, {{"name": "get_weather",'
        f' "arguments": {A}}}]</tool_call>',
        [*call(0, "get_time", "{}"), *call(1, "get_weather", A)],
    ),
    "two in one tag": (
        f'<tool_call>{{"name": "get_time", "arguments": {{}}}}\n{{"name": "get_weather",'
        f' "arguments": {A}}}</tool_call>',
        [*call(0, "get_time", "{}"), *call(1, "get_weather", A)],
    ),
    "arguments before the name": (
        f'<tool_call>{{"arguments": {A}, "name": "get_weather"}}</tool_call>',
        call(0, "get_weather", A),
    ),
    "arguments in a string": (
        r'<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}</tool_call>',
        call(0, "get_weather", A),
    ),
    "no arguments": ('<tool_call>{"name": "get_time"}</tool_call>', call(0, "get_time", "{}")),
    "parameters, and more members": (
        f'<tool_call>{{"name": "get_time", "parameters": {A}, "id": [1, "}}"]}}</tool_call>',
        call(0, "get_time", A),
    ),
    "the brace forgotten": (
        f'<tool_call>{{"name": "get_time", "arguments": {A}\n</tool_call> Well.',
        [*call(0, "get_time", A), Content("Well.")],
    ),
    "cut in the arguments": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Ro',
        call(0, "get_weather", '{"city": "Ro'),
    ),
    "cut after the arguments": (
        f'<tool_call>\n{{"name": "get_weather", "arguments": {A}',
        call(0, "get_weather", A),
    ),
    "cut in the closing tag": (
        f'<tool_call>\n{{"name": "get_weather", "arguments": {A}}}\n</tool_',
        call(0, "get_weather", A),
    ),
    "cut in the name": (
        '<tool_call>\n{"name": "get_wea',
        [Content('<tool_call>\n{"name": "get_wea')],
    ),
    "cut in the tag": ("Hm <tool_c", [Content("Hm <tool_c")]),
    "an unknown tool": (
        'See <tool_call>{"name": "rm", "arguments": {}}</tool_call>',
        [Content('See <tool_call>{"name": "rm", "arguments": {}}</tool_call>')],
    ),
    "no JSON": (
        "<tool_call>get_time()</tool_call>",
        [Content("<tool_call>get_time()</tool_call>")],
    ),
    "no JSON, then a call": (
        f'<tool_call>oh<tool_call>{{"name": "get_time", "arguments": {A}}}</tool_call>',
        [Content("<tool_call>oh"), *call(0, "get_time", A)],
    ),
    "arguments that go astray": (
        '<tool_call>{"name": "get_time", "arguments": {"a": <tool_call>{"name": "get_time"}',
        [*call(0, "get_time", '{"a": '), *call(1, "get_time", "{}")],
    ),
    "arguments that are no object": (
        '<tool_call>{"name": "get_time", "arguments": [1]}</tool_call>',
        [Content('<tool_call>{"name": "get_time", "arguments": [1]}</tool_call>')],
    ),
    "a number that JSON has not": (
        '<tool_call>{"arguments": {"a": NaN}, "name": "get_time"}</tool_call>',
        [Content('<tool_call>{"arguments": {"a": NaN}, "name": "get_time"}</tool_call>')],
    ),
    "half a surrogate": (
        r'<tool_call>{"arguments": {"a": "\ud800"}, "name": "get_time"}</tool_call>',
        call(0, "get_time", r'{"a": "\ud800"}'),
    ),
    "a real line break in a held string": (
        '<tool_call>{"arguments": {"a": "x\ny"}, "name": "get_time"}</tool_call>',
        call(0, "get_time", r'{"a": "x\ny"}'),
    ),
    "white space only": (" \n ", [Content(" \n ")]),
    "words": (" Grüße, 🌍 < > \n", [Content(" Grüße, 🌍 < > \n")]),
    "nothing": ("", []),
}

LLAMA3 = {
    "one": (f'{{"name": "get_weather", "parameters": {A}}}', call(0, "get_weather", A)),
    "behind the tag": (
        f'<|python_tag|>{{"name": "get_weather", "parameters": {A}}}',
        call(0, "get_weather", A),
    ),
    "two": (
        f'{{"name": "get_weather", "parameters": {A}}}; {{"name": "get_time", "parameters": {{}}}}',
        [*call(0, "get_weather", A), *call(1, "get_time", "{}")],
    ),
    "with a type": (
        f'{{"type": "function", "name": "get_time", "parameters": {NESTED}}}',
        call(0, "get_time", NESTED),
    ),
    "with a function": (
        f'{{"type": "function", "function": {{"name": "get_time", "parameters": {A}}}}}',
        call(0, "get_time", A),
    ),
    "a JSON answer": ('{"city": "Rome", "n": 1}', [Content('{"city": "Rome", "n": 1}')]),
    "a JSON list": (" [1, 2]", [Content(" [1, 2]")]),
    "JSON that is like a call": (
        '{"name": "Rome", "parameters": {}} it is',
        [Content('{"name": "Rome", "parameters": {}} it is')],
    ),
    "words before": (
        'So: {"name": "get_time", "parameters": {}}',
        [Content('So: {"name": "get_time", "parameters": {}}')],
    ),
    "cut": ('{"name": "get_time", "parameters": {"a": ', call(0, "get_time", '{"a": ')),
    "cut early": ('{"name": "get_', [Content('{"name": "get_')]),
    "code": ("<|python_tag|>print(1)", [Content("<|python_tag|>print(1)")]),
}

MISTRAL = {
    "one": (
        f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {A}}}]',
        call(0, "get_weather", A),
    ),
    "two": (
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {A}, "id": "abcdefghi"}},'
        ' {"name": "get_time", "arguments": {}}]',
        [*call(0, "get_weather", A), *call(1, "get_time", "{}")],
    ),
    "names before arguments": (
        f"Hm.[TOOL_CALLS]get_weather[ARGS]{A}[TOOL_CALLS]get_time{{}}",
        [Content("Hm."), *call(0, "get_weather", A), *call(1, "get_time", "{}")],
    ),
    "names with ids": (
        f"[TOOL_CALLS]ns.find-it[CALL_ID]abcdefghi[ARGS]{TRICKY}",
        call(0, "ns.find-it", TRICKY),
    ),
    "an unknown name": ("[TOOL_CALLS]rm[ARGS]{}", [Content("[TOOL_CALLS]rm[ARGS]{}")]),
    "no name": ("[TOOL_CALLS] What? {}", [Content("[TOOL_CALLS] What? {}")]),
    "a name without end": ("[TOOL_CALLS]" + "a" * 2000, [Content("[TOOL_CALLS]" + "a" * 2000)]),
    "the second is none": (
        '[TOOL_CALLS][{"name": "get_time", "arguments": {}}, 5] x',
        [*call(0, "get_time", "{}"), Content(", 5] x")],
    ),
    "a list": ("See [1] and [TOOL", [Content("See [1] and [TOOL")]),
}

PYTHONIC = {
    "one": ('[get_weather(city="Rome")]', call(0, "get_weather", A)),
    "two": (
        "[get_weather(city='Rome'), get_time()]",
        [*call(0, "get_weather", A), *call(1, "get_time", "{}")],
    ),
    "tags": (
        '<|python_start|>[get_weather(city="Rome")]<|python_end|>ok',
        [*call(0, "get_weather", A), Content("ok")],
    ),
    "all literals": (
        "[ns.find-it(a=[1, -2.5, None], b={'k': (True, false)}, c='it\\'s \\u00e9', d='x' \"y\",)]",
        call(
            0,
            "ns.find-it",
            '{"a": [1, -2.5, null], "b": {"k": [true, false]}, "c": "it\'s é", "d": "xy"}',
        ),
    ),
    "brackets in strings": (
        '[get_time(a=")] (", b="\\\\")]',
        call(0, "get_time", '{"a": ")] (", "b": "\\\\"}'),
    ),
    "lines": ("[\n  get_time(\n    a=1,\n  ),\n]", call(0, "get_time", '{"a": 1}')),
    "an expression": ("[get_time(a=1+1)]", [Content("[get_time(a=1+1)]")]),
    "a positional argument": ("[get_time(1)]", [Content("[get_time(1)]")]),
    "twice the same": ("[get_time(a=1, a=2)]", [Content("[get_time(a=1, a=2)]")]),
    "infinite": ("[get_time(a=1e999)]", [Content("[get_time(a=1e999)]")]),
    "an unknown tool": ("[rm(a=1)]", [Content("[rm(a=1)]")]),
    "a list": ("[1, 2] are numbers", [Content("[1, 2] are numbers")]),
    "cut": ("[get_time(a='x", [Content("[get_time(a='x")]),
    "the second is none": (
        "[get_time(), rm()] x",
        [*call(0, "get_time", "{}"), Content(", rm()] x")],
    ),
    "the bracket forgotten": ("[get_time() then", [*call(0, "get_time", "{}"), Content("then")]),
    "deep": (f"[get_time(a={DEEP})]", [Content(f"[get_time(a={DEEP})]")]),
}

FORMATS = {
    ToolFormat.HERMES: HERMES,
    ToolFormat.LLAMA3_JSON: LLAMA3,
    ToolFormat.MISTRAL: MISTRAL,
    ToolFormat.PYTHONIC: PYTHONIC,
}
CASES = [
    pytest.param(form, *case, id=f"{form.value}: {name}")
    for form, cases in FORMATS.items()
    for name, case in cases.items()
]


@pytest.mark.parametrize(("form", "text", "parts"), CASES)
def test_read_whole(form: ToolFormat, text: str, parts: list[Part]):
    assert parts_of(make_parser(form), [text]) == parts


@pytest.mark.parametrize(("form", "text", "parts"), CASES)
def test_read_a_character_at_a_time(form: ToolFormat, text: str, parts: list[Part]):
    assert parts_of(make_parser(form), text) == parts
