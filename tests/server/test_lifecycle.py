# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import contextlib

import pytest

from octavo.server.errors import ApiError
from octavo.server.lifecycle import Lifecycle

pytestmark = pytest.mark.anyio


async def test_what_comes_in_is_counted_until_it_ends_even_in_an_error():
    lifecycle = Lifecycle(abort=[].append)
    with contextlib.suppress(KeyError), lifecycle.tracked(["a", "b"]):
        assert lifecycle.num_live == 2
        raise KeyError
    assert lifecycle.num_live == 0


async def test_draining_lets_nothing_in_that_was_still_being_parsed():
    lifecycle = Lifecycle(abort=[].append)
    lifecycle.check_open()
    lifecycle.start_draining()
    with pytest.raises(ApiError, match="shutting down") as refused, lifecycle.tracked(["late"]):
        pass
    assert refused.value.status == 503
    assert lifecycle.num_live == 0


async def test_drain_waits_for_the_live_and_aborts_nobody_in_time():
    aborted: list[str] = []
    lifecycle = Lifecycle(aborted.append)
    with lifecycle.tracked(["a"]):
        drain = asyncio.create_task(lifecycle.drain(60))
        await asyncio.sleep(0.01)
        assert not drain.done()
    await drain
    assert aborted == []


async def test_drain_aborts_the_rest_in_order_of_arrival():
    aborted: list[str] = []
    lifecycle = Lifecycle(aborted.append)
    with lifecycle.tracked(["b"]), lifecycle.tracked(["a"]):
        await lifecycle.drain(0)
        assert aborted == ["b", "a"]
