# SPDX-License-Identifier: Apache-2.0
"""A drain that began while a request was tokenised was noticed after the status line of its stream:
a 200 went out, and then an error."""

from __future__ import annotations

import pytest
from serverkit import MODEL, ByteTokenizer, ReciteEngine, connect, make_app

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": CHAT,
    "/v1/responses": {"input": "Hi"},
    "/v1/completions": {"prompt": "Hi"},
}


class SlowTokenizer(ByteTokenizer):
    """Meanwhile the server is told to end."""

    app = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        if self.app is not None:
            self.app.state.lifecycle.start_draining()
        return super().encode(text, add_special_tokens=add_special_tokens)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_it_is_refused_by_its_status(path: str, stream: bool) -> None:
    engine = ReciteEngine()
    engine.tokenizer = SlowTokenizer()
    engine.admission._tokenizer = engine.tokenizer  # it is the gate that tokenises
    app = make_app(engine)
    async with connect(app) as client:
        engine.tokenizer.app = app
        response = await client.post(path, json={**BODIES[path], "stream": stream})
    assert (response.status_code, bool(response.headers["retry-after"])) == (503, True)
    assert engine.requests == []
