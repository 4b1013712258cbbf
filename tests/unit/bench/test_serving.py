# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from octavo.bench.http_client import Target
from octavo.bench.prompts import Wish
from octavo.bench.sending import NoAnswer
from octavo.bench.serving import Outcome, Plan, run
from octavo.bench.words import WordCounter
from octavo.types.errors import InvalidConfig
from scripted_server import ScriptedServer, reply, scripted

ANSWER = reply(b'data: {"choices": [{"text": "a", "finish_reason": "length"}]}\n\n')
NOT_FOUND = reply(b"{}", 404)
WISH = Wish(count=2, input_len=5, output_len=3)


class CountingBar:
    def __init__(self) -> None:
        self.total = 0
        self.advances: list[int] = []

    def advance(self, num_tokens: int) -> None:
        self.advances.append(num_tokens)

    def make(self, total: int) -> AbstractContextManager[CountingBar]:
        self.total = total
        return nullcontext(self)


def bench(server: ScriptedServer, bar: CountingBar | None = None, **fields) -> Outcome:
    target = Target.parse(server.url)
    plan = Plan(target, fields.pop("wish", WISH), **{"counter": WordCounter(), **fields})
    return asyncio.run(run(plan, (bar or CountingBar()).make))


def prompts(server: ScriptedServer) -> list[str]:
    bodies = [request.split(b"\r\n\r\n", 1)[1] for request in server.requests]
    return [json.loads(body)["prompt"] for body in bodies if body]


def test_the_first_request_and_warm_up_are_not_measured():
    bar = CountingBar()
    with scripted([ANSWER] * 5) as server:
        outcome = bench(server, bar, model="m", num_warmups=2)
    assert (bar.total, bar.advances) == (2, [1, 1])
    assert [record.error for record in outcome.records] == [None, None]
    first, *others = prompts(server)
    assert [len(prompt.split()) for prompt in others] == [5] * 4
    assert len({first, *others}) == 5


def test_the_server_is_asked_for_its_model():
    with scripted([reply(b'{"data": [{"id": "m"}]}'), ANSWER, ANSWER, ANSWER]) as server:
        assert bench(server).model == "m"


def test_a_server_that_cannot_count_leaves_words():
    with scripted([ANSWER, *[NOT_FOUND] * 3, ANSWER, ANSWER]) as server:
        outcome = bench(server, model="m", counter=None)
    assert "approximate" in outcome.counter_name


def test_a_server_that_stops_counting_is_told():
    with (
        scripted([ANSWER, reply(b'{"count": 3}'), NOT_FOUND]) as server,
        pytest.raises(NoAnswer, match="stopped counting tokens"),
    ):
        bench(server, model="m", counter=None)


def test_what_the_server_refuses_is_said():
    said: list[str] = []
    refusal = reply(b'{"error": "ignore_eos?"}', 422)
    with scripted([refusal, refusal, ANSWER, ANSWER, ANSWER]) as server:
        plan = Plan(
            Target.parse(server.url), WISH, model="m", ignore_eos=True, counter=WordCounter()
        )
        asyncio.run(run(plan, CountingBar().make, said.append))
    assert said[0] == "the server refuses ignore_eos: it is left out"
    assert b"ignore_eos" not in server.requests[-1]


def test_traces_are_replayed_unless_there_is_a_rate():
    target = Target.parse("http://a")
    trace = Wish("azure", Path("x"))
    assert Plan(target, WISH).rate == float("inf")
    assert Plan(target, trace).rate == "trace"
    assert Plan(target, trace, request_rate=2.0).rate == 2.0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"backend": "x"}, "--backend"),
        ({"endpoint": "x"}, "--endpoint"),
        ({"endpoint": "/x\r\nHost: y"}, "--endpoint"),
        ({"max_concurrency": 0}, "--max-concurrency"),
        ({"request_rate": 0.0}, "--request-rate"),
        ({"request_rate": "trace"}, "--request-rate trace needs"),
        ({"request_rate": 1.0, "burstiness": -1.0}, "--burstiness"),
        ({"wish": Wish("azure", Path("x")), "time_scale": 0.0}, "--time-scale"),
    ],
)
def test_bad_plans_are_refused(fields, said):
    with pytest.raises(InvalidConfig, match=said):
        Plan(Target.parse("http://a"), **{"wish": WISH, **fields})
