# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from octavo.bench.http_client import HttpClient, Target
from octavo.bench.records import Record, Sample
from octavo.bench.sending import Dialect, NoAnswer, Pace, run_load, served_model, settle
from scripted_server import reply, scripted

SAMPLE = Sample("Hi", 1, 5)
PLAIN = Dialect("openai", "/v1/completions", "m", extra={"temperature": 0.0})
ANSWER = (
    b'data: {"choices": [{"text": "a", "finish_reason": "length"}]}\n\n'
    b'data: {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 5}}\n\n'
    b"data: [DONE]\n\n"
)


def refusal(message: str, status: int = 400) -> bytes:
    return reply(json.dumps({"error": {"message": message}}).encode(), status)


def run(server, coroutine_of):
    async def main():
        client = HttpClient(Target.parse(server.url))
        try:
            return await coroutine_of(client)
        finally:
            client.close()

    return asyncio.run(main())


def bodies(server) -> list[dict[str, object]]:
    return [json.loads(request.split(b"\r\n\r\n", 1)[1]) for request in server.requests]


def load(server, count: int, pace: Pace, dialect: Dialect = PLAIN) -> list[Record]:
    return run(server, lambda client: run_load(client, dialect, [SAMPLE] * count, pace))


def test_only_standard_fields_are_sent():
    assert json.loads(PLAIN.body(SAMPLE)) == {
        "model": "m",
        "prompt": "Hi",
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
    }


def test_a_chat_sends_messages():
    body = json.loads(Dialect("openai-chat", "/v1/chat/completions", "m").body(SAMPLE))
    assert body["messages"] == [{"role": "user", "content": "Hi"}]
    assert "prompt" not in body


def test_answers_are_recorded():
    with scripted([reply(ANSWER)] * 3) as server:
        records = load(server, 3, Pace([0.0, 0.0, 0.01]))
    assert [record.error for record in records] == [None] * 3
    assert {(r.num_prompt_tokens, r.num_output_tokens, r.text) for r in records} == {(2, 5, "a")}
    assert all(record.due_s <= record.start_s <= record.end_s for record in records)
    assert records[2].due_s == pytest.approx(records[0].due_s + 0.01)


def test_failures_are_recorded_and_stop_nobody():
    replies = [reply(ANSWER), refusal("full", 429), b"nonsense\r\n\r\n", reply(ANSWER[:40])]
    with scripted([*replies, reply(ANSWER)], closes=[2]) as server:
        records = load(server, 5, Pace([0.0] * 5, max_concurrency=1))
    errors = [record.error for record in records]
    assert errors[0] is errors[4] is None
    assert errors[1] == "status 429: full"
    assert "no HTTP/1.1" in errors[2]
    assert "finish reason" in errors[3]


def test_a_server_that_does_not_answer_runs_out_of_time():
    with scripted([b"HTTP/1.1 200 OK\r\n"]) as server:
        (record,) = load(server, 1, Pace([0.0], timeout_s=0.05))
    assert record.error == "no answer within the time limit"
    assert record.e2e_s >= 0.05


def test_requests_that_wait_for_others_are_not_slower_for_it():
    with scripted([reply(ANSWER)] * 4) as server:
        records = load(server, 4, Pace([0.0] * 4, max_concurrency=1))
        assert server.num_connections == 1
    assert len({record.due_s for record in records}) == 1
    for before, after in pairwise(records):
        assert after.start_s >= before.end_s


@pytest.mark.parametrize(
    ("replies", "without"),
    [
        ([reply(ANSWER)], set()),
        ([refusal("max_tokens?"), reply(ANSWER)], {"max_tokens"}),
        ([refusal("no ignore_eos")] * 2 + [reply(ANSWER)], {"ignore_eos"}),
        ([refusal("no usage")] * 3 + [reply(ANSWER)], {"stream_options"}),
        ([refusal("neither")] * 4 + [reply(ANSWER)], {"ignore_eos", "stream_options"}),
    ],
)
def test_fields_that_a_server_refuses_are_left_out(replies, without):
    dialect = Dialect("openai", "/v1/completions", "m", ignore_eos=True)
    with scripted(replies) as server:
        found, record = run(server, lambda client: settle(client, dialect, SAMPLE, 5.0))
    assert found.without == without
    assert record.error is None
    last = bodies(server)[-1]
    assert not without & last.keys()
    assert ("max_completion_tokens" in last) is ("max_tokens" in without)


def test_the_first_refusal_is_told():
    with (
        scripted([refusal("no such model", 404)]) as server,
        pytest.raises(NoAnswer, match="fails the first request: status 404: no such model"),
    ):
        run(server, lambda client: settle(client, PLAIN, SAMPLE, 5.0))
    assert len(server.requests) == 1


def test_the_first_model_is_found():
    with scripted([reply(b'{"data": [{"id": "m"}, {"id": "n"}]}')]) as server:
        assert run(server, served_model) == "m"


@pytest.mark.parametrize("body", [b"{}", b'{"data": []}', b"[]", b"nonsense", b'{"data": [5]}'])
def test_without_models_one_must_be_named(body):
    with scripted([reply(body)]) as server, pytest.raises(NoAnswer, match="--model"):
        run(server, served_model)


def test_nobody_there_is_told():
    with scripted([]) as server:
        pass
    with pytest.raises(NoAnswer, match="no server answers at http://127"):
        run(server, served_model)
