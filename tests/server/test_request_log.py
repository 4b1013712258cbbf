# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging

import httpx
import pytest
from serverkit import ANSWER, ReciteEngine, connect, make_app, running, wait_until

from octavo.server.config import ServerConfig
from octavo.server.keys import Keyring
from octavo.server.operations import Operations
from octavo.server.request_log import JsonFormatter

pytestmark = pytest.mark.anyio

KEY = "sk-Okapi-31415926"
WRONG = "sk-Okapi-nearly-it"
PROMPT = "Xylophone\nlines"
COMPLETIONS = "/v1/completions"
NAME = "octavo.server.request_log"


class Lines(logging.Handler):
    """Every record of this process, as the program would write it, in either format."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.json: list[dict] = []
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("httpx"):  # the test's own client
            return
        line = JsonFormatter().format(record)
        assert "\n" not in line
        self.json.append(json.loads(line))
        self.text += logging.Formatter().format(record) + "\n" + line + "\n"

    def requests(self) -> list[dict]:
        return [line for line in self.json if line["logger"] == NAME]


@pytest.fixture
def lines():
    handler, root = Lines(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def app(engine: ReciteEngine | None = None, **config: object):
    around = Operations(config=ServerConfig(**config), keyring=Keyring.collect([KEY]))
    return make_app(engine, around=around)


async def ask(application, path: str = COMPLETIONS, key: str = KEY, **body: object):
    body = {"prompt": PROMPT, "max_tokens": 100, **body}
    headers = {"x-api-key": key, "x-request-id": "mine"}
    async with connect(application) as client:
        return await client.post(path, json=body, headers=headers)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_one_line_with_its_cost(lines, stream):
    await ask(app(), stream=stream)
    (line,) = lines.requests()
    assert {**line, "time": "", "duration_s": 0.0, "message": ""} == {
        "time": "",
        "level": "info",
        "logger": NAME,
        "message": "",
        "request_id": "mine",
        "method": "POST",
        "route": COMPLETIONS,
        "status": 200,
        "duration_s": 0.0,
        "user": "key-1",
        "ended": ["stop"],
        "prompt_tokens": len(PROMPT) + 1,
        "cached_tokens": 0,
        "completion_tokens": len(ANSWER.encode()) + 1,
    }
    assert line["message"].startswith(
        f"mine: POST {COMPLETIONS} by key-1, status 200, stop, 16 prompt + "
    )
    assert 0.0 < line["duration_s"] < 10.0


async def test_what_was_asked_and_answered_is_shown_to_nobody(lines):
    for stream in (False, True):
        await ask(app(), stream=stream)
        await ask(app(ReciteEngine(fail_after=2)), stream=stream)
        await ask(app(), stream=stream, max_tokens=-1)
    assert len(lines.requests()) == 6
    assert "Xylophone" not in lines.text
    assert "world" not in lines.text


async def test_prompts_are_shown_when_asked_for_and_cannot_forge_a_line(lines):
    await ask(app(log_prompts=True))
    await ask(app(log_prompts=True), prompt=[72, 105])
    assert [line["prompts"] for line in lines.requests()] == [[PROMPT], ["72 105"]]
    assert '["Xylophone\\nlines"]' in lines.requests()[0]["message"]


async def test_no_key_is_ever_in_the_log(lines):
    """Right and wrong ones, in headers, URLs and bodies, of requests that go well and ill."""
    for key in (KEY, WRONG):
        for path in (COMPLETIONS, f"{COMPLETIONS}?api_key={key}", f"/{key}", "/v1/models"):
            await ask(app(log_prompts=False), path, key, user=key, unknown=key)
            await ask(app(ReciteEngine(fail_after=1)), path, key)
    assert len(lines.requests()) == 16
    assert "mine" in lines.text
    assert KEY not in lines.text
    assert WRONG not in lines.text


async def test_that_test_would_notice(lines):
    logging.getLogger("octavo").info("got %s", KEY)
    assert KEY in lines.text


async def test_a_refusal_has_the_route_but_no_free_text(lines):
    await ask(app(), key=WRONG)
    await ask(app(), path="/v1/models/secret-name")
    await ask(app(), path="/no%0Awhere")
    first, second, third = lines.requests()
    assert (first["route"], first["status"]) == (COMPLETIONS, 401)
    assert (second["route"], second["status"]) == ("/v1/models/{name:path}", 405)
    assert (third["route"], third["status"]) == (None, 404)
    assert "secret-name" not in lines.text


async def test_probes_are_quiet_as_long_as_they_succeed(lines):
    engine = ReciteEngine()
    async with connect(app(engine)) as client:
        for path in ("/health", "/metrics", "/version"):
            await client.get(path)
        engine.is_running = False
        await client.get("/health")
    levels = [line["level"] for line in lines.requests()]
    assert levels == ["debug"] * 3 + ["info"]


@pytest.mark.parametrize(("stream", "status"), [(False, 499), (True, 200)])
def test_a_client_that_leaves_is_a_line_too(lines, stream, status):
    engine = ReciteEngine(stall_after=3)
    body = {"prompt": PROMPT, "stream": stream}
    with running(app(engine)) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{url}{COMPLETIONS}",
                json=body,
                headers={"x-api-key": KEY},
                timeout=httpx.Timeout(10.0, read=0.2),
                trust_env=False,
            )
        wait_until(lambda: lines.requests())
    (line,) = lines.requests()
    assert (line["ended"], line["status"]) == (["cancelled"], status)
    assert line["completion_tokens"] == (3 if stream else 0)


async def test_a_traceback_is_a_field(lines):
    class Broken(ReciteEngine):
        def stats(self):
            raise RuntimeError("odd")

    async with connect(app(Broken())) as client:
        assert (await client.get("/metrics")).status_code == 500
    (line,) = [one for one in lines.json if "exception" in one]
    assert line["exception"].endswith("RuntimeError: odd")
