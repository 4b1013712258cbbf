# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from serverkit import ReciteEngine, connect, make_app

from octavo.engine.admission import Admission
from octavo.engine.overflow import AdmissionLimits
from octavo.types.request import ServiceClass

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BODY = {"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
pytestmark = pytest.mark.anyio


async def post(path: str, engine: ReciteEngine | None = None, **fields: object):
    async with connect(make_app(engine)) as client:
        return await client.post(path, json={**BODY, **fields})


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
async def test_who_asks_reaches_the_scheduler(path):
    engine = ReciteEngine()
    fields = {"priority": -3, "service_class": "batch", "user": "me", "cache_salt": "s"}
    assert (await post(path, engine, **fields)).status_code == 200
    (request,) = engine.requests
    assert (request.priority, request.service_class) == (-3, ServiceClass.BATCH)
    assert (request.user, request.cache_salt) == ("me", "s")


TIERS = {
    "auto": ("standard", "default"),
    "default": ("standard", "default"),
    "flex": ("batch", "flex"),
    "priority": ("interactive", "priority"),
}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("tier", TIERS)
async def test_a_tier_is_a_class_and_the_answer_says_which(tier, path):
    engine = ReciteEngine()
    service_class, answered = TIERS[tier]
    answer = (await post(path, engine, service_tier=tier)).json()
    assert engine.requests[0].service_class.value == service_class
    assert answer["service_tier"] == answered
    assert "service_tier" not in (await post(path)).json()


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"service_tier": "gold"}, "service_tier"),
        ({"service_tier": 1}, "service_tier"),
        ({"service_class": "gold"}, "service_class"),
        ({"service_class": "batch", "service_tier": "priority"}, "service_class"),
        ({"priority": 2**63}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"user": "x" * 2000}, "user"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "x" * 2000}, "cache_salt"),
    ],
)
async def test_a_bad_one_is_a_400_that_names_the_field(fields, param, path):
    reply = await post(path, **fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_a_priority_needs_its_policy():
    engine = ReciteEngine()
    limits = AdmissionLimits(4096, 10**6, has_priorities=False)
    engine.admission = Admission(engine.tokenizer, limits)
    reply = await post(CHAT, engine, priority=1)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "priority")
    assert (await post(CHAT, engine, priority=0)).status_code == 200
