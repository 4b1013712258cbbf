# SPDX-License-Identifier: Apache-2.0
"""Which tokens belong to what, and how the fields of a refusal are spelt."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from octavo.chat.parts import Content, Reasoning, ToolCall
from octavo.chat.plain import PlainParser
from octavo.server.reply import Account
from octavo.server.turn import respelt
from octavo.types.errors import InvalidRequest
from octavo.types.outputs import CompletionOutput, Logprob


def step(*token_ids: int) -> CompletionOutput:
    logprobs = tuple({token_id: Logprob(-1.0, 1)} for token_id in token_ids)
    return CompletionOutput(index=0, text="", token_ids=token_ids, logprobs=logprobs)


def test_tokens_belong_to_the_first_part_that_is_given_after_them():
    account = Account()
    assert account.piece([], step(1)).logprobs == ()
    assert account.piece([Reasoning("a")], step(2, 3)).logprobs == ()
    assert account.num_reasoning == 3
    assert account.piece([], step(4)).logprobs == ()
    piece = account.piece([Content("b")], step(5))
    assert [token_id for token_id, _ in piece.logprobs] == [4, 5]
    assert account.piece([ToolCall(0, "c", "f")], step(6)).logprobs == ()
    assert account.num_reasoning == 3


def test_plain_text_is_all_content():
    parser = PlainParser()
    assert parser.feed("") == []
    assert parser.feed("Hi") == [Content("Hi")]
    assert parser.finish() == []


NAMES = {
    "messages": "input",
    "messages[1]": "input[4]",
    "max_tokens": "max_output_tokens",
    "tools[0].function": "tools[0]",
}


@pytest.mark.parametrize(
    ("param", "message", "new_param", "new_message"),
    [
        ("max_tokens", "max_tokens is bad", "max_output_tokens", "max_output_tokens is bad"),
        ("messages", "messages: no", "input", "input: no"),
        ("messages[1].content", "messages[1].content?", "input[4].content", "input[4].content?"),
        ("messages[10].content", "messages[10]", "input[10].content", "input[10]"),
        ("tools[0].function.name", "no", "tools[0].name", "no"),
        ("max_tokens_x", "max_tokens_x", "max_tokens_x", "max_tokens_x"),
        (None, "no", None, "no"),
    ],
)
def test_a_field_is_named_as_the_caller_spells_it(param, message, new_param, new_message):
    error = respelt(InvalidRequest(message, param=param), NAMES)
    assert (error.status, error.param, error.message) == (400, new_param, new_message)


def test_a_field_of_the_wrong_type_too():
    class Body(BaseModel):
        max_tokens: int

    with pytest.raises(ValidationError) as caught:
        Body.model_validate({"max_tokens": "x"})
    error = respelt(caught.value, NAMES)
    assert error.param == "max_output_tokens"
    assert error.message.startswith("max_output_tokens ")
