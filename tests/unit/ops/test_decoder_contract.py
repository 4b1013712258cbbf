# SPDX-License-Identifier: Apache-2.0
"""What the decoder refuses: every bad number is named, and refusing changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tiny_decoder import F32, LLAMA, VOCAB, Driver, make_model, with_layers

from octavo.ops.decoder import Decoder, FlatBatch
from octavo.types.decoder_spec import DecoderSpec, Slot
from octavo.types.errors import StepFailed
from octavo.types.step import BlockCopy, RowOpen, RowSampling, RowWork, StepPlan
from octavo.worker.batch import flatten

EMPTY = FlatBatch((), (), (), (), (), (), ())
MODEL = make_model(LLAMA)
SAMPLING = RowSampling()


def ready(num_blocks: int = 4, step_tokens_max: int = 32) -> Decoder:
    decoder = MODEL.decoder()
    decoder.create_kv_cache(num_blocks, 8, num_rows=3, step_tokens_max=step_tokens_max)
    return decoder


def batch_of(work: RowWork, *opened: RowOpen) -> FlatBatch:
    return flatten(StepPlan(0, opened=opened, work=(work,)))


BAD_WORK = {
    "row": (RowWork(3, 0, 1, (1,), (0,)), r"work\[0\].row must be in \[0, 3\), got 3"),
    "closed": (RowWork(1, 0, 1, (1,), (0,)), r"row 1 is closed"),
    "no tokens": (RowWork(0, 2, 0, (), (0,)), r"num_tokens must be at least 1"),
    "too many": (RowWork(0, 2, 33, (1,) * 33), r"num_tokens must be in \[0, 33\), got 33"),
    "start": (RowWork(0, 1, 1, (1,)), r"start is 1, but row 0 has 2 tokens computed"),
    "ids": (RowWork(0, 2, 2, (1,)), r"token_ids has 1 ids for 2 tokens"),
    "no ids": (RowWork(0, 2, 2), r"token_ids has 0 ids for 2 tokens"),
    "never sampled": (RowWork(0, 2, 1), r"token_ids is empty, but row 0 has no sampled token"),
    "block id": (RowWork(0, 2, 1, (1,), (4,)), r"new_blocks\[0\] must be in \[0, 4\), got 4"),
    "negative block": (RowWork(0, 2, 1, (1,), (-1,)), r"new_blocks\[0\] must be .* got -1"),
    "table": (RowWork(0, 2, 7, (1,) * 7), r"ends at token 9, but its block table holds 1 blocks"),
    "targets": (RowWork(0, 2, 1, (1,), (), False, (1, 2)), r"num_targets must be in \[0, 2\)"),
    "nothing to fork": (RowWork(0, 2, 0, samples=True, logits_of=1), "row 1 computes nothing"),
    "own fork": (RowWork(0, 2, 0, samples=True, logits_of=0), "row 0 computes nothing"),
    "wild fork": (RowWork(0, 2, 0, samples=True, logits_of=3), r"logits_of must be in \[0, 3\)"),
    "silent fork": (RowWork(0, 2, 0, logits_of=1), "samples must be true with logits_of"),
    "busy fork": (RowWork(0, 2, 1, (1,), logits_of=1), "num_tokens must be 0 with logits_of"),
    "replaced": (
        RowWork(0, 2, 1, (1,), replaced=((1, 2),)),
        r"replaced\[0\].table_idx must be in \[0, 1\), got 1",
    ),
    "replacement": (
        RowWork(0, 2, 1, (1,), replaced=((0, 4),)),
        r"replaced\[0\].block must be in \[0, 4\), got 4",
    ),
    "one block twice": (RowWork(0, 2, 7, (1,) * 7, (0,)), r"writes to block 0, which other work"),
}


@pytest.mark.parametrize("name", BAD_WORK)
def test_bad_work_is_refused_by_name_and_changes_nothing(name: str) -> None:
    work, message = BAD_WORK[name]
    decoder = ready()
    decoder.step(batch_of(RowWork(0, 0, 2, (1, 2), (0,)), RowOpen(0, SAMPLING)))
    with pytest.raises(ValueError, match=message):
        decoder.step(batch_of(work))
    decoder.step(batch_of(RowWork(0, 2, 6, (1,) * 6)))  # the row goes on as if nothing had been


def test_two_rows_cannot_write_to_one_block() -> None:
    driver = Driver(MODEL, block_size=8)
    driver.open(0)
    driver.open(1)
    first, second = driver.work(0, [1, 2]), driver.work(1, [3])
    with pytest.raises(StepFailed, match="which other work writes too"):
        driver.step(first, replace(second, new_blocks=first.new_blocks))


def test_a_row_has_one_piece_of_work() -> None:
    driver = Driver(MODEL)
    driver.open(0)
    with pytest.raises(StepFailed, match=r"work\[1\]: row 0 has work already"):
        driver.step(driver.work(0, [1]), driver.work(0, [1]))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (StepPlan(0, closed=(1,)), r"closed\[0\]: row 1 is not open"),
        (StepPlan(0, closed=(0, 0)), r"closed\[1\]: row 0 is not open"),
        (StepPlan(0, closed=(99,)), r"closed\[0\] must be in \[0, 32\), got 99"),
        (StepPlan(0, opened=(RowOpen(0, SAMPLING),)), r"opened\[0\]: row 0 is open already"),
        (StepPlan(0, opened=(RowOpen(32, SAMPLING),)), r"opened\[0\].row must be in"),
        (StepPlan(0, copies=(BlockCopy(0, 160, 1),)), r"copies\[0\].dst must be in \[0, 160\)"),
        (StepPlan(0, copies=(BlockCopy(-1, 0, 1),)), r"copies\[0\].src must be in \[0, 160\)"),
        (StepPlan(0, copies=(BlockCopy(0, 1, 17),)), r"copies\[0\].num_tokens must be in"),
        (StepPlan(0, opened=(RowOpen(1, SAMPLING, 1),)), r"num_computed is 1, but its 0 blocks"),
        (StepPlan(0, opened=(RowOpen(1, SAMPLING, 17, (3,)),)), "num_computed is 17, but its 1"),
        (StepPlan(0, opened=(RowOpen(1, SAMPLING, 0, (3, 160)),)), r"blocks\[1\] must be in"),
        (StepPlan(0, opened=(RowOpen(1, SAMPLING, 1025),)), r"num_computed must be in \[0, 1025\)"),
        (StepPlan(0, swap_ins=((0, 1),)), "no swap tier"),
        (StepPlan(0, swap_outs=((0, 1),)), "no swap tier"),
    ],
)
def test_bad_rows_and_copies_are_refused(plan: StepPlan, message: str) -> None:
    driver = Driver(MODEL)
    driver.open(0)
    driver.open(5)
    driver.step(driver.work(0, [1]), driver.work(5, [1]))
    with pytest.raises(StepFailed, match=message):
        driver.worker.execute(plan)
    (row,) = driver.step(driver.work(5, [2]))
    assert row.error is None


def test_a_row_closed_and_opened_in_one_plan_begins_anew() -> None:
    driver = Driver(MODEL)
    driver.open(0)
    driver.step(driver.work(0, [1, 2, 3]))
    plan = StepPlan(
        0,
        closed=(0,),
        opened=(RowOpen(0, SAMPLING),),
        work=(RowWork(0, 0, 1, (5,), (1,), samples=True),),
    )
    assert driver.worker.execute(plan).rows[0].token_id is not None


def test_a_cached_prefix_is_a_table_and_a_start() -> None:
    """Row 1 takes row 0's full block as its own past, and computes only what follows."""
    ids = [int(i) for i in np.random.default_rng(0).integers(0, VOCAB, 20)]
    driver = Driver(MODEL)
    driver.open(0)
    first = driver.work(0, ids, samples=True)
    (whole,) = driver.step(first)
    again = RowWork(1, 16, 4, tuple(ids[16:]), (driver._free.pop(),), samples=True)
    opened = RowOpen(1, RowSampling(num_logprobs=VOCAB), 16, first.new_blocks[:1])
    plan = StepPlan(0, opened=(opened,), work=(again,))
    (reused,) = driver.worker.execute(plan).rows
    assert (reused.token_id, reused.logprobs) == (whole.token_id, whole.logprobs)


@pytest.mark.parametrize("num_shared", [1, 4, 5, 8, 11])
def test_copy_on_write_copies_the_slots_in_use_and_no_others(num_shared: int) -> None:
    """A fork at any offset of a block: the child's continuation equals the same tokens alone."""
    rng = np.random.default_rng(num_shared)
    ids = [int(i) for i in rng.integers(0, VOCAB, 16)]
    other = [int(i) for i in rng.integers(0, VOCAB, 16 - num_shared)]
    alone = Driver(MODEL)
    alone.open(0)
    expected = alone.step(alone.work(0, ids[:num_shared] + other, samples=True))[0]

    driver = Driver(MODEL)
    driver.open(0)
    parent = driver.work(0, ids)
    driver.step(parent)
    copied = driver._free.pop()
    child = RowWork(1, num_shared, len(other), tuple(other), samples=True)
    plan = StepPlan(
        0,
        opened=(RowOpen(1, RowSampling(num_logprobs=VOCAB), num_shared, (copied,)),),
        copies=(BlockCopy(parent.new_blocks[0], copied, num_shared),),
        work=(child,),
    )
    result = driver.worker.execute(plan).rows[0]
    assert (result.token_id, result.logprobs) == (expected.token_id, expected.logprobs)


def test_scores_and_a_sample_may_share_a_position() -> None:
    driver = Driver(MODEL)
    driver.open(0)
    (result,) = driver.step(driver.work(0, [1, 2, 3], samples=True, targets=[2, 3, 9]))
    assert result.logprobs is not None
    assert [scored.token_id for scored in result.scored] == [2, 3, 9]
    assert result.scored[-1].top == result.logprobs.top
    assert result.logprobs.rank == 1
    assert result.scored[-1].logprob == dict(result.logprobs.top)[9]


def test_more_scores_than_rows_of_logits_kept() -> None:
    """Logits exist for 32 rows at a time; 100 scores take four rounds."""
    ids = [int(i) for i in np.random.default_rng(1).integers(0, VOCAB, 100)]
    driver = Driver(MODEL, num_threads=2)
    driver.open(0)
    whole = driver.score(0, ids)
    driver.open(1)
    np.testing.assert_array_equal(whole, driver.score(1, ids, [25] * 4))


def test_missing_tensors_are_all_named() -> None:
    decoder = Decoder(LLAMA, num_threads=1)
    for (slot, layer_idx), (ggml_type, shape, data) in MODEL.matrices.items():
        if (slot, layer_idx) not in ((Slot.Q, 1), (Slot.EMBEDDING, None)):
            decoder.load_matrix(slot, layer_idx, ggml_type, shape, memoryview(data))
    with pytest.raises(RuntimeError, match=r"embedding, output_norm, .*layers.1..attn_norm") as err:
        decoder.finish_loading()
    assert "layers[1].q," in str(err.value)
    assert "layers[0].q," not in str(err.value)
    with pytest.raises(RuntimeError, match="needs finish_loading"):
        decoder.create_kv_cache(4, 8, 1, 8)


def test_bad_tensors_are_refused() -> None:
    decoder = Decoder(LLAMA, num_threads=1)
    data = memoryview(bytes(96 * 32 * 4))

    def load(slot: Slot, layer_idx: int | None, ggml_type: int, shape: tuple[int, int]) -> None:
        decoder.load_matrix(slot, layer_idx, ggml_type, shape, data)

    with pytest.raises(ValueError, match=r"layers\[0\].q has shape \[32, 96\], wanted \[96, 32\]"):
        load(Slot.Q, 0, F32, (32, 96))
    with pytest.raises(ValueError, match=r"layers\[0\].q has 12288 bytes, wanted 6144"):
        load(Slot.Q, 0, 1, (96, 32))
    with pytest.raises(ValueError, match="tensor type 4 is not supported"):
        load(Slot.Q, 0, 4, (96, 32))
    with pytest.raises(ValueError, match=r"layers\[0\].q has 32 columns, wanted a multiple of 256"):
        load(Slot.Q, 0, 12, (96, 32))
    with pytest.raises(ValueError, match=r"layers\[2\].q is not a tensor of this model"):
        load(Slot.Q, 2, F32, (96, 32))
    with pytest.raises(ValueError, match=r"^q is not a tensor of this model"):
        load(Slot.Q, None, F32, (96, 32))
    with pytest.raises(ValueError, match=r"layers\[0\].q_norm is not a tensor of this model"):
        decoder.load_vector(Slot.Q_NORM, 0, memoryview(bytes(64)))
    with pytest.raises(ValueError, match=r"attn_norm has 16 values, wanted 32"):
        decoder.load_vector(Slot.ATTN_NORM, 0, memoryview(bytes(64)))
    with pytest.raises(ValueError, match=r"attn_norm has 63 bytes, wanted whole float32"):
        decoder.load_vector(Slot.ATTN_NORM, 0, memoryview(bytes(63)))
    load(Slot.Q, 0, F32, (96, 32))
    with pytest.raises(ValueError, match=r"layers\[0\].q was loaded twice"):
        load(Slot.Q, 0, F32, (96, 32))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(LLAMA, hidden_dim=0), "hidden_dim must be in"),
        (replace(LLAMA, vocab_size=2**40), "vocab_size must be in"),
        (replace(LLAMA, layers=()), "number of layers"),
        (replace(LLAMA, norm_eps=float("nan")), "norm_eps must be finite"),
        (with_layers(LLAMA, num_kv_heads=4), "must be a multiple of num_kv_heads"),
        (with_layers(LLAMA, head_dim=12), "head_dim must be a multiple of 8"),
        (with_layers(LLAMA, head_dim=512), "head_dim must be in"),
        (with_layers(LLAMA, head_dim=8), "too small for 8 rope pairs"),
        (with_layers(LLAMA, rope_idx=2), "rope_idx 2 is past the 2 ropes"),
        (with_layers(LLAMA, window=0), "window must be at least 1"),
        (with_layers(LLAMA, attn_soft_cap=0.0), "attn_soft_cap must be above 0"),
    ],
)
def test_a_specification_that_cannot_run_is_refused(spec: DecoderSpec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Decoder(spec, num_threads=1)


def test_threads_and_kernel_tables_are_checked() -> None:
    with pytest.raises(ValueError, match="num_threads must be in"):
        Decoder(LLAMA, num_threads=0)
    with pytest.raises(ValueError, match="avx9"):
        Decoder(LLAMA, num_threads=1, isa="avx9")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 8, 1, 8), "num_blocks"),
        ((4, 12, 1, 8), "block_size must be a positive multiple of 8, got 12"),
        ((4, 8, 0, 8), "num_rows"),
        ((4, 8, 1, 0), "step_tokens_max"),
    ],
)
def test_bad_sizes_are_refused(sizes: tuple[int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODEL.decoder().create_kv_cache(*sizes)


def test_memory_is_reported() -> None:
    decoder = ready(num_blocks=5)
    report = decoder.memory_report()
    matrix_bytes = sum(len(data) for _, _, data in MODEL.matrices.values())
    vector_bytes = sum(len(data) for data in MODEL.vectors.values())
    assert matrix_bytes + vector_bytes <= report.weights_bytes
    assert report.kv_bytes_per_block == 8 * LLAMA.kv_bytes_per_token()
    assert report.kv_bytes_per_block == decoder.kv_bytes_per_block(8)
    assert report.kv_bytes >= 5 * report.kv_bytes_per_block
    assert report.scratch_bytes > 0


def test_a_closed_decoder_says_so() -> None:
    with ready() as decoder:
        decoder.step(EMPTY)
    decoder.close()
    with pytest.raises(RuntimeError, match="closed"):
        decoder.step(EMPTY)
