# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from serverkit import ANSWER, ReciteEngine, connect, events_of, make_app

from fakes import ManualClock
from octavo.server.errors import ApiError
from octavo.server.keys import Keyring
from octavo.server.operations import Operations
from octavo.server.rate_limits import Account, Limits, TokenBucket

COMPLETIONS = "/v1/completions"


def test_a_bucket_fills_evenly_and_never_over():
    clock = ManualClock(10.0)
    bucket = TokenBucket(60, 60.0, clock)
    bucket.spend(60)
    assert (bucket.level, bucket.wait_s(1)) == (0.0, 1.0)
    clock.advance(0.5)
    assert (bucket.level, bucket.wait_s(1)) == (0.5, 0.5)
    clock.advance(1000.0)
    assert (bucket.level, bucket.wait_s(60)) == (60.0, 0.0)


def test_a_debt_is_paid_before_anything_else():
    clock = ManualClock()
    bucket = TokenBucket(60, 60.0, clock)
    bucket.spend(100)
    assert (bucket.level, bucket.wait_s(1)) == (-40.0, 41.0)


def test_a_clock_that_goes_back_gives_nothing():
    clock = ManualClock(100.0)
    bucket = TokenBucket(60, 60.0, clock)
    bucket.spend(60)
    clock.advance(-50.0)
    assert bucket.level == 0.0


def test_a_refused_request_is_not_counted():
    clock = ManualClock()
    account = Account("a", Limits(requests_per_minute=2), clock)
    account.enter()
    account.enter()
    for _ in range(5):
        with pytest.raises(ApiError, match="the API key a has used up its 2 requests per minute"):
            account.enter()
    clock.advance(30.0)
    account.enter()


def test_the_fullest_wait_is_the_one_that_is_told():
    clock = ManualClock()
    account = Account("a", Limits(5, 60, 86400), clock)
    account.spend_tokens(160)
    with pytest.raises(ApiError, match="60 tokens per minute") as refused:
        account.enter()
    assert refused.value.headers["retry-after"] == str(160 - 60 + 1)
    assert refused.value.headers["x-ratelimit-remaining-tokens"] == "0"


def test_no_client_is_sent_away_for_longer_than_a_day():
    account = Account("a", Limits(tokens_per_day=10), ManualClock())
    account.spend_tokens(1000)
    with pytest.raises(ApiError) as refused:
        account.enter()
    assert refused.value.headers["retry-after"] == "86400"


def limited(engine: ReciteEngine, clock: ManualClock, **limits: int):
    keyring = Keyring.collect(["sk-1", "sk-2"], limits=Limits(**limits))
    return make_app(engine, around=Operations(keyring=keyring, clock=clock))


def headers(number: int = 1) -> dict[str, str]:
    return {"x-api-key": f"sk-{number}"}


def shown(response, unit: str) -> tuple[str, ...]:
    names = ("limit", "remaining", "reset")
    return tuple(response.headers[f"x-ratelimit-{name}-{unit}"] for name in names)


@pytest.mark.anyio
async def test_requests_are_counted_for_each_key_alone():
    clock, engine = ManualClock(), ReciteEngine()
    body = {"prompt": "Hi", "max_tokens": 2}
    async with connect(limited(engine, clock, requests_per_minute=2)) as client:
        first = await client.post(COMPLETIONS, json=body, headers=headers())
        assert shown(first, "requests") == ("2", "1", "30.000s")
        await client.post(COMPLETIONS, json=body, headers=headers())
        refused = await client.post(COMPLETIONS, json=body, headers=headers())
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "30"
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert shown(refused, "requests") == ("2", "0", "60.000s")
        assert (await client.get("/v1/models", headers=headers())).status_code == 200
        assert (await client.post(COMPLETIONS, json=body, headers=headers(2))).status_code == 200
        clock.advance(30.0)
        assert (await client.post(COMPLETIONS, json=body, headers=headers())).status_code == 200
    assert len(engine.requests) == 4


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_of_prompt_and_answer_are_paid_for(stream):
    clock, engine = ManualClock(), ReciteEngine()
    body = {"prompt": ["Hi", "Ho"], "max_tokens": 100, "stream": stream}
    used = 2 * (3 + len(ANSWER.encode()) + 1)
    async with connect(limited(engine, clock, tokens_per_minute=used)) as client:
        first = await client.post(COMPLETIONS, json=body, headers=headers())
        assert first.status_code == 200
        if stream:
            events_of(first.text)
        refused = await client.post(COMPLETIONS, json=body, headers=headers())
        assert shown(refused, "tokens") == (str(used), "0", "60.000s")
        clock.advance(60.0)
        assert (await client.post(COMPLETIONS, json=body, headers=headers())).status_code == 200


@pytest.mark.anyio
async def test_a_failed_answer_costs_what_it_had():
    clock, engine = ManualClock(), ReciteEngine(fail_after=3)
    body = {"prompt": "Hi", "max_tokens": 100}
    async with connect(limited(engine, clock, tokens_per_minute=100)) as client:
        failed = await client.post(COMPLETIONS, json=body, headers=headers())
        assert failed.status_code == 500
        bad = await client.post(COMPLETIONS, json={"prompt": 5}, headers=headers())
        assert (bad.status_code, shown(bad, "tokens")[1]) == (400, str(100 - 3 - 3))
