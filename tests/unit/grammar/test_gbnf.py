# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest

from grammarkit import accepts, compiled
from octavo.grammar.gbnf import gbnf_to_lark, is_lark

JSON_LIKE = r"""
# a comment
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def test_a_real_grammar():
    grammar = compiled(grammar=JSON_LIKE)
    for text in ('{"a": [1, -2.5, true], "b\\u00e9": {}}', "{}", '{"x":null}\n  '):
        assert accepts(grammar, text), text
    for text in ('{"a": }', "[1]", '{"a": 01.}', '{"a" 1}'):
        assert not accepts(grammar, text), text


@pytest.mark.parametrize(
    ("gbnf", "yes", "no"),
    [
        ('root ::= "a" "b"?', ["a", "ab"], ["b", "abb"]),
        ('root ::= fooBar | foo-bar\nfooBar ::= "1"\nfoo-bar ::= "2"', ["1", "2"], ["3"]),
        ("root ::= [a-z]+ [0-9]{2,3}", ["a12", "ab123"], ["a1", "12", "a1234"]),
        (r"root ::= [\]\\^-]+", ["]", "\\", "^-"], ["a"]),
        (r"root ::= [-a] [a-]", ["--", "a-"], ["b-"]),
        (r'root ::= [^/"]+', ["abc"], ["a/b", '"']),
        (r'root ::= "\x41\u00e9\U0001F600\n"', ["Aé😀\n"], ["A"]),
        ("root ::= .{2}", ["ab", "é\n"], ["a", "abc"]),
        ('root ::= "a" |\n  "b"', ["a", "b"], ["ab"]),
        # Letters are one by one: what follows a repetition is not swallowed by it.
        ('root ::= [a-z]* "x"', ["x", "abx", "xx"], ["ab"]),
        ('root ::= item{2}\nitem ::= "ab" ', ["abab"], ["ab", "ababab"]),
    ],
)
def test_notation(gbnf, yes, no):
    grammar = compiled(grammar=gbnf)
    for text in yes:
        assert accepts(grammar, text), gbnf_to_lark(gbnf)
    for text in no:
        assert not accepts(grammar, text), text


@pytest.mark.parametrize(
    ("gbnf", "why"),
    [
        ('start2 ::= "a"', "no rule is named root"),
        ("root ::= missing", "missing, which is not defined"),
        ('root ::= "a"\nroot ::= "b"', "line 2: rule root is defined twice"),
        ('"a"', "line 1: a rule begins with"),
        ('root ::= "a"\n::= "b"', "line 2: ::= without a name"),
        ('root ::= "a', "line 1: cannot read"),
        ("root ::= []", "no characters"),
        (r'root ::= "\uD800"', "is no character"),
    ],
)
def test_mistakes_name_their_line(gbnf, why):
    with pytest.raises(ValueError, match=why):
        gbnf_to_lark(gbnf)


def test_the_notations_are_told_apart():
    assert is_lark('start: "a"')
    assert is_lark('%llguidance {}\nstart: "a"')
    assert is_lark('X: "a"\nstart : X')
    assert not is_lark('root ::= "start: a"')
    assert not is_lark('start ::= "a"\nroot ::= start')


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 250_000,
        " \n" * 125_000,
        "start[\n" * 36_000,
        "start" + " " * 250_000,
        'root ::= "a"{1,' + " " * 250_000,
        'root ::= "a"{1' + "1" * 250_000,
        'root ::= "' + "\\a" * 125_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_time_is_linear_in_hostile_texts(text):
    """Backtracking over these takes minutes, all of them with the interpreter's lock."""
    start_s = time.thread_time()
    assert not is_lark(text)
    with pytest.raises(ValueError, match=r"cannot read|no rule|begins with"):
        gbnf_to_lark(text)
    assert time.thread_time() - start_s < 10


def test_depth_costs_no_stack():
    assert gbnf_to_lark("root ::= " + "(" * 50_000 + '"a"' + ")" * 50_000)
