# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from octavo.tokenizer.chat_template import ChatTemplate
from octavo.types.errors import InvalidRequest

USER = [{"role": "user", "content": "hi"}]
PYTHON_LISTS = (
    "MadeAgents/Hammer2.1"  # prints a list: as JSON in the reference, here as Python does
)


def now() -> datetime:
    return datetime(2025, 7, 10, 12, tzinfo=UTC)


def render(source: str, messages: Any = USER, **variables: object) -> str:
    return ChatTemplate(source, special_tokens={"bos_token": "<s>"}, now=now).render(
        messages, add_generation_prompt=False, variables=variables
    )


def test_published_templates_give_the_published_texts(data_dir: Path):
    lines = (data_dir / "tokenizers" / "chat_templates.jsonl").read_text().splitlines()
    assert len(lines) == 27
    for item in map(json.loads, lines):
        data = dict(item["data"])
        messages, prompted = data.pop("messages"), data.pop("add_generation_prompt", False)
        template = ChatTemplate(item["chat_template"], special_tokens={}, now=now)
        text = template.render(messages, add_generation_prompt=prompted, variables=data)
        wanted = item["target"]
        if item["model"] == PYTHON_LISTS:
            wanted = wanted.replace(json.dumps(data["tools"]), str(data["tools"]))
        assert text == wanted, item["model"]


def test_the_templates_own_refusal_reaches_the_caller():
    with pytest.raises(InvalidRequest, match="roles must alternate") as caught:
        render("{{ raise_exception('roles must alternate') }}")
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ messages[0].content + 1 }}",
        "{{ messages.append(1) }}",
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__name__ }}",
        "{% include 'x' %}",
        "{{ lipsum() }}",
        "{{ undefined_function() }}",
    ],
)
def test_broken_and_forbidden_things_are_a_bad_request(source: str):
    with pytest.raises(InvalidRequest, match="chat template refuses") as caught:
        render(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'a': '\u00e9<&'} | tojson }}", '{"a": "\u00e9<&"}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{{ strftime_now('%d %b %Y') }}", "10 Jul 2025"),
        ("{% generation %}a{{ 1 }}{% endgeneration %}b", "a1b"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% for i in [1, 2] %}{{ loop.index }}/{{ loop.length }}{% endfor %}", "1/22/2"),
        ("{% for i in [1, 2] %}{{ '' if loop.last else ',' }}{% endfor %}", ","),
        ("  {% if true %}\n  a\n  {% endif %}\n", "  a\n"),
        ("{{ bos_token ~ messages[0]['content'] ~ 1 }}", "<s>hi1"),
        ("{{ messages[1:] }}{{ 'abc'[::-1] }}{{ 'abc'[1:] }}", "[]cbabc"),
        ("{{ 'a-b'.split('-') | join('+') }}", "a+b"),
        ("{{ messages | map(attribute='role') | join(',') }}", "user"),
        ("{{ 'a\nb' | indent(2) }}{{ 'a\n\nb' | indent(1, true) }}", "a\n  b a\n\n b"),
        ("{{ '%s is %d' % ('x', 3) }}{{ '{} {}'.format(1, 2) }}", "x is 31 2"),
        ("{{ 'aXb' | replace('X', '-') }}{{ 'aXb'.replace('X', '+') }}", "a-ba+b"),
        ("{{ 2 ** 10 }}{{ 3 * 'ab' }}{{ 7 % 4 }}{{ 2.567 | round(1) }}", "1024ababab32.6"),
        ("{% set ns = namespace(x=1) %}{% set ns.x = ns.x + 1 %}{{ ns.x }}", "2"),
        ("{% macro m(a) %}[{{ a }}]{% endmacro %}{{ m('x') }}", "[x]"),
        ("{{ tools is none }}{{ missing is defined }}", "TrueFalse"),
    ],
)
def test_what_templates_may_count_on(source: str, text: str):
    assert render(source) == text


NESTED = "{% set a = [0] %}" + "{% set a = [a, a] %}" * 60
LOOPS = "{% for a in range(100000) %}{% for b in range(100000) %}"
HUNGRY = {
    "nested loops": LOOPS + "{% endfor %}{% endfor %}",
    "much text": LOOPS + "x" * 10_000 + "{% endfor %}{% endfor %}",
    "huge range": "{% for a in range(10 ** 9) %}{% endfor %}",
    "repeated text": "{{ 'x' * 10 ** 10 }}",
    "repeated list": "{{ ([0] * 10 ** 10) | length }}",
    "large power": "{{ 10 ** (10 ** 10) }}",
    "squares": "{% set n = namespace(x=3) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}"
    "{% endfor %}",
    "doubling": "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}"
    "{% endfor %}",
    "doubling by concatenation": "{% set n = namespace(x='x') %}{% for i in range(99) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling by capture": "{% set x %}x{% endset %}"
    + "{% set x %}{{ x }}{{ x }}{% endset %}" * 60,
    "doubling by macro": "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}"
    "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = f(n.x) %}{% endfor %}",
    "shared lists printed": NESTED + "{{ a }}",
    "shared lists as JSON": NESTED + "{{ a | tojson }}",
    "shared lists as a string": NESTED + "{{ a | string | length }}",
    "shared lists walked": NESTED
    + "{% for x in a recursive %}{% if x is iterable %}{{ loop(x) }}{% endif %}{% endfor %}",
    "endless recursion": "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
    "wide formatting": "{{ '%1000000000d' % 1 }}",
    "wide formatting by argument": "{{ '%*d' % (10 ** 9, 1) }}",
    "wide format string": "{{ '{:1000000000}'.format(1) }}",
    "wide format string by argument": "{{ '{:{}}'.format(1, 10 ** 9) }}",
    "padding": "{{ 'x'.ljust(10 ** 10) }}",
    "indentation": "{{ 'x\nx' | indent(10 ** 10) }}",
    "long separators": "{{ range(100000) | join('x' * 1000000) }}",
    "long separators by method": "{{ ('x' * 1000000).join('y' * 100000) }}",
    "long replacement": "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
    "long replacement by method": "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "constant chain": "{{ 'xxxxxxxx'" + " | replace('x', 'xxxxxxxx')" * 40 + " }}",
    "int to bytes": "{{ (1).to_bytes(10 ** 10) }}",
    "slices kept": "{% set n = namespace(l=[]) %}{% set b = 'x' * 10000000 %}"
    "{% for i in range(9999) %}{% set n.l = n.l + [b[1:]] %}{% endfor %}",
    "rounding": "{{ 5 | round(-10 ** 9) }}",
}


@pytest.mark.parametrize("source", HUNGRY.values(), ids=HUNGRY)
def test_a_hungry_template_is_stopped(source: str):
    """Well under the budget's own bound: 2**26 units are a million loop rounds, a few seconds."""
    started = time.process_time()
    with pytest.raises(InvalidRequest, match="chat template refuses"):
        render(source)
    assert time.process_time() - started < 10


def test_a_huge_template_is_not_compiled():
    with pytest.raises(InvalidRequest, match="characters, at most"):
        render("x" * (2**20 + 1))


def test_the_budget_grows_with_the_input():
    """A long conversation is no attack: the template may copy each message many times."""
    messages = [{"role": "user", "content": "x" * 100_000}] * 200
    source = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    assert len(render(source, messages)) == 200 * (100_000 + len("user: \n"))


def test_threads_do_not_share_a_budget():
    source = "{% for i in range(50000) %}{% endfor %}{{ messages[0].content }}"
    template = ChatTemplate(source, special_tokens={})
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: texts.append(template.render([{"content": f"<{n}>"}])))
        for n in range(30)  # together they spend more than one budget
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(texts) == sorted(f"<{n}>" for n in range(30))
