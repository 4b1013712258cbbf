# SPDX-License-Identifier: Apache-2.0
"""An engine whose model sees ten tokens back, over a worker that reads no more than that."""

from __future__ import annotations

import pytest

from echo_parts import windowed_rule
from enginekit import greedy, make_engine, run_all
from fakes import EchoExecutor, expected_tokens
from octavo.engine.engine import Engine
from octavo.server import views
from octavo.types.errors import PromptTooLong
from octavo.types.sampling_params import SamplingParams
from octavo.types.step import RowSampling

WINDOW = 10


def make(num_blocks: int, *, window: int | None = WINDOW, model_len: int = 500) -> Engine:
    executor = EchoExecutor(num_blocks=num_blocks, rule=windowed_rule(WINDOW))
    executor.window = window
    return make_engine(executor, window=window, max_model_len=model_len)


def test_a_prompt_and_an_answer_may_be_longer_than_the_pool() -> None:
    engine = make(6)
    prompt = [n % 250 for n in range(200)]
    engine.add_request("long", prompt, greedy(250))
    (last,) = [output for output in run_all(engine) if output.finished]
    wanted = expected_tokens(prompt, 250, rule=windowed_rule(WINDOW))
    assert list(last.outputs[0].token_ids) == wanted


def test_but_not_where_something_is_seen_for_ever() -> None:
    with pytest.raises(PromptTooLong, match="at most 48 fit the KV cache"):
        make(6, window=None).add_request("long", [1] * 200, greedy())


def test_nor_in_a_pool_too_small_for_the_window() -> None:
    """Four blocks besides the null block's are what a sequence may hold; a chunk needs one more."""
    with pytest.raises(PromptTooLong, match="at most 32 fit the KV cache"):
        make(5).add_request("long", [1] * 200, greedy())


def test_samples_are_taken_as_long_as_all_of_them_fit() -> None:
    engine = make(12)
    engine.add_request(
        "pair", [1] * 100, SamplingParams(n=2, temperature=1, seed=4, max_tokens=100)
    )
    (last,) = [output for output in run_all(engine) if output.finished]
    for sample in last.outputs:
        sampling = RowSampling(temperature=1.0, seed=4, sample_idx=sample.index)
        wanted = expected_tokens([1] * 100, 100, sampling, windowed_rule(WINDOW))
        assert list(sample.token_ids) == wanted
    with pytest.raises(PromptTooLong):
        engine.add_request("many", [1] * 100, SamplingParams(n=8, temperature=1))


@pytest.mark.parametrize(("window", "model_len", "num_blocks"), [(WINDOW, 10, 8), (WINDOW, 500, 1)])
def test_no_block_is_set_aside_where_none_would_ever_go(
    window: int, model_len: int, num_blocks: int
) -> None:
    engine = make(num_blocks, window=window, model_len=model_len)
    assert engine.blocks.usage().num_blocks == num_blocks


def test_views_show_what_is_held_and_what_the_null_block_is() -> None:
    engine = make(12)
    engine.add_request("long", [1] * 60, greedy(30))
    for _ in range(6):
        engine.step()
    (row,) = views.requests(engine)
    table = views.request_blocks(engine, "long")
    assert table is not None
    (sequence,) = table["sequences"]
    assert row["num_blocks"] == len(sequence["blocks"]) <= 4
    assert sequence["blocks"][0]["index"] > 0
    full = views.blocks_full(engine, first=0, limit=50)
    states = [block["state"] for block in full["blocks"]]
    assert states.count("null") == 1
    assert len(states) == 12
    assert full["num_left_out"] == 0
    assert full["usage"]["num_blocks"] == 11
