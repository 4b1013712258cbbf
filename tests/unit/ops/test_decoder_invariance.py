# SPDX-License-Identifier: Apache-2.0
"""What a row computes depends on its own tokens alone. Every comparison here is of bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tiny_decoder import (
    BF16,
    F16,
    F32,
    LLAMA,
    Q4_0,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    VOCAB,
    Driver,
    TinyModel,
    by_id,
    make_model,
    with_layers,
)

from octavo.ops.cpu import runnable_kernels
from octavo.types.decoder_spec import Activation
from octavo.types.step import RowOpen, RowSampling, RowWork, StepPlan

# All dims multiples of 256, so that every tensor type fits everywhere; the layers differ in what
# they ask of the program: window, soft cap, norms, biases.
_WIDE = with_layers(
    replace(LLAMA, hidden_dim=256), num_heads=8, num_kv_heads=2, head_dim=32, mlp_dim=256
)
WIDE = replace(
    _WIDE,
    layers=(
        replace(_WIDE.layers[0], has_qkv_bias=True),
        replace(
            _WIDE.layers[0],
            window=40,
            attn_soft_cap=20.0,
            has_qk_norm=True,
            has_post_norms=True,
            rope_idx=1,
            activation=Activation.GELU_TANH,
        ),
    ),
)
MIXED = {
    "legacy": (Q4_1, Q5_0, Q8_0, Q4_0, Q5_1, Q4_1, Q5_0),
    "k": (Q6_K, Q4_K, Q5_K, Q8_0, Q6_K, Q4_K, Q4_K, Q5_K),
    "wide": (F16, Q8_0, F32, BF16, Q4_1),
}
LENGTH = 90  # three spans of 32, six blocks of 16, and past the window


def ids_for(seed: int, length: int = LENGTH) -> list[int]:
    return [int(i) for i in np.random.default_rng(seed).integers(0, VOCAB, length)]


@pytest.fixture(scope="module", params=MIXED)
def model(request: pytest.FixtureRequest) -> TinyModel:
    return make_model(WIDE, MIXED[request.param], seed=7)


def alone(model: TinyModel, ids: Sequence[int]) -> np.ndarray:
    driver = Driver(model)
    driver.open(0)
    return driver.score(0, ids)


def test_the_numbers_are_worth_comparing(model: TinyModel) -> None:
    scores = alone(model, ids_for(0))
    assert np.all(np.isfinite(scores))
    assert scores.std() > 0.1  # a degenerate model would be invariant for free
    assert len({row.tobytes() for row in scores}) == LENGTH


@pytest.mark.parametrize("isa", runnable_kernels())
def test_every_kernel_table_gives_the_same_bits(model: TinyModel, isa: str) -> None:
    driver = Driver(model, isa=isa)
    driver.open(0)
    np.testing.assert_array_equal(driver.score(0, ids_for(0)), alone(model, ids_for(0)))


@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_any_number_of_threads(model: TinyModel, num_threads: int) -> None:
    driver = Driver(model, num_threads=num_threads)
    driver.open(0)
    np.testing.assert_array_equal(driver.score(0, ids_for(0)), alone(model, ids_for(0)))


@pytest.mark.parametrize("size", [1, 7, 16, 64])
def test_any_chunking(model: TinyModel, size: int) -> None:
    chunks = [size] * (LENGTH // size) + [LENGTH % size] * (LENGTH % size > 0)
    driver = Driver(model, num_threads=2)
    driver.open(0)
    np.testing.assert_array_equal(driver.score(0, ids_for(0), chunks), alone(model, ids_for(0)))


@pytest.mark.parametrize("block_size", [8, 32, 64])
def test_any_block_size(model: TinyModel, block_size: int) -> None:
    driver = Driver(model, block_size=block_size, num_blocks=32, seed=5)
    driver.open(0)
    np.testing.assert_array_equal(driver.score(0, ids_for(0)), alone(model, ids_for(0)))


def test_alone_or_among_others(model: TinyModel) -> None:
    """Rows of every age in one batch: whole prompts, chunks, and single tokens."""
    driver = Driver(model, num_threads=3)
    lengths = [1, 2, 3, 5, 17, 31, 33, LENGTH]
    for row in range(len(lengths)):
        driver.open(row)
    scores: dict[int, list[list[float]]] = {row: [] for row in range(len(lengths))}
    for first, last in ((0, 1), (1, 4), (4, 40), (40, 41), (41, LENGTH)):
        work = []
        for row, length in enumerate(lengths):
            chunk = ids_for(row, length)[first:last]
            if chunk:
                work.append(driver.work(row, chunk, targets=[0] * len(chunk)))
        for result in driver.step(*work):
            scores[result.row] += [by_id(scored.top) for scored in result.scored]
    for row, length in enumerate(lengths):
        expected = alone(model, ids_for(row, length))
        np.testing.assert_array_equal(np.array(scores[row]), expected)


def test_sampling_is_keyed_by_the_request_and_not_by_the_row(model: TinyModel) -> None:
    sampling = RowSampling(temperature=1.0, top_k=10, top_p=0.95, seed=99)
    outputs = []
    for row, others in ((0, 0), (5, 4)):
        driver = Driver(model, num_threads=1 + others)
        for idx in range(others):
            driver.open(idx, RowSampling(temperature=1.0, seed=idx))
        driver.open(row, sampling)
        work = [driver.work(idx, ids_for(idx, 9), samples=True) for idx in range(others)]
        results = driver.step(driver.work(row, ids_for(1, 20), samples=True), *work)
        tokens = [results[0].token_id]
        for _ in range(30):
            work = [driver.work(idx, [], samples=True) for idx in range(others)]
            tokens.append(driver.step(*work, driver.work(row, [], samples=True))[-1].token_id)
        outputs.append(tokens)
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0])) > 3


@pytest.mark.parametrize("num_threads", [1, 2, 8])
def test_a_long_decode_is_split_over_threads_without_a_trace(num_threads: int) -> None:
    """700 tokens are three segments of 256. Eight threads have fewer rows than hands, so they split
    the segments of a decode; a prompt computed whole never does."""
    model = make_model(WIDE, MIXED["legacy"], seed=7)
    ids = ids_for(3, 700)
    whole = Driver(model, step_tokens_max=700)
    whole.open(0)
    expected = whole.score(0, ids)[-20:]
    driver = Driver(model, num_threads=num_threads)
    driver.open(0)
    scores = driver.score(0, ids, [340, 340] + [1] * 20)[-20:]
    np.testing.assert_array_equal(scores, expected)


def poisoned(model: TinyModel) -> TinyModel:
    """The same model, but token 13 embeds to NaN."""
    slot = next(key for key in model.matrices if key[0].value == "embedding")
    ggml_type, shape, data = model.matrices[slot]
    row_bytes = len(data) // VOCAB
    rows = bytearray(data)
    # All ones is NaN in float32, float16 and bfloat16, and so in the scale of any block.
    rows[13 * row_bytes : 14 * row_bytes] = b"\xff" * row_bytes
    matrices = {**model.matrices, slot: (ggml_type, shape, bytes(rows))}
    return TinyModel(model.spec, matrices, model.vectors, model.weights)


def test_a_row_that_fails_fails_alone(model: TinyModel) -> None:
    driver = Driver(poisoned(model), num_threads=2)
    healthy, ill = [1, 2, 3, 4, 5], [1, 13, 3]
    for row in range(3):
        driver.open(row)
    results = driver.step(
        driver.work(0, healthy, samples=True),
        driver.work(1, ill, samples=True, targets=[0, 0]),
        driver.work(2, healthy, samples=True),
    )
    assert results[1].error is not None
    assert "not finite" in results[1].error
    assert results[1].token_id is None
    assert results[0].error is results[2].error is None
    expected = alone(model, healthy)[-1]
    for row in (0, 2):
        logprobs = results[row].logprobs
        assert logprobs is not None
        np.testing.assert_array_equal(np.array(by_id(logprobs.top)), expected)


def test_a_failed_row_goes_on_failing_alone_until_it_is_closed(model: TinyModel) -> None:
    """With plans in flight, the next decode of a row is submitted before its failure is seen."""
    driver = Driver(poisoned(model), num_threads=2)
    driver.open(0)
    driver.open(1)
    driver.step(driver.work(0, [1, 2], samples=True), driver.work(1, [13], samples=True))
    healthy, ill = driver.step(driver.work(0, [], samples=True), driver.work(1, [], samples=True))
    assert healthy.error is None
    assert healthy.token_id is not None
    assert (ill.token_id, ill.error is None) == (None, False)
    opened = (RowOpen(1, RowSampling()),)
    work = (RowWork(1, 0, 1, (2,), (driver._free.pop(),), samples=True),)
    (again,) = driver.worker.execute(StepPlan(1, closed=(1,), opened=opened, work=work)).rows
    assert again.error is None


def test_blocks_that_others_left_behind_do_not_matter(model: TinyModel) -> None:
    """A sequence fills the pool with NaN; another reuses it, half-full last block and all."""
    ids = [i for i in ids_for(4) if i != 13]
    driver = Driver(poisoned(model), num_blocks=6)  # 96 slots: room for one
    driver.open(0)
    (result,) = driver.step(driver.work(0, [13] * 96, samples=True))
    assert result.error is not None
    driver.worker.execute(StepPlan(0, closed=(0,)))
    driver._free = list(range(6))
    driver.open(1)
    np.testing.assert_array_equal(driver.score(1, ids), alone(model, ids))
