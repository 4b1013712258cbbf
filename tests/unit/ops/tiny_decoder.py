# SPDX-License-Identifier: Apache-2.0
"""Decoders of a few kilobytes with random weights, of any tensor type, and a driver for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from reference import Weights

from octavo.ops.cpu import dequantize_row
from octavo.ops.decoder import Decoder
from octavo.types.decoder_spec import (
    Activation,
    DecoderSpec,
    LayerSpec,
    RopePairing,
    RopeSpec,
    Slot,
)
from octavo.types.step import RowOpen, RowResult, RowSampling, RowWork, StepPlan
from octavo.worker.worker import Worker

F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16 = 0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 30

# Per type: bytes of a block, its columns, and where its half-precision scales stand in the block.
_BLOCKS = {
    Q4_0: (18, 32, (0,)),
    Q4_1: (20, 32, (0, 2)),
    Q5_0: (22, 32, (0,)),
    Q5_1: (24, 32, (0, 2)),
    Q8_0: (34, 32, (0,)),
    Q4_K: (144, 256, (0, 2)),
    Q5_K: (176, 256, (0, 2)),
    Q6_K: (210, 256, (208,)),
}
# The largest code of a type times its largest inner scale: dividing by it keeps weights near 1.
_CODE_MAX = {Q4_0: 8, Q4_1: 15, Q5_0: 16, Q5_1: 31, Q8_0: 127, Q4_K: 945, Q5_K: 1953, Q6_K: 4064}

VOCAB = 40
LLAMA = DecoderSpec(
    architecture="tiny",
    hidden_dim=32,
    vocab_size=VOCAB,
    context_length=1024,
    norm_eps=1e-5,
    layers=(
        LayerSpec(
            num_heads=6,
            num_kv_heads=2,
            head_dim=16,
            mlp_dim=64,
            activation=Activation.SILU,
            rope_idx=0,
            attn_scale=0.25,
        ),
    )
    * 2,
    ropes=(
        RopeSpec(RopePairing.INTERLEAVED, tuple(100.0 ** (-i / 8) for i in range(8))),
        RopeSpec(RopePairing.HALVES, tuple(50.0 ** (-i / 4) for i in range(4)), magnitude=1.25),
    ),
)


def with_layers(spec: DecoderSpec, **changes: object) -> DecoderSpec:
    layers = tuple(replace(layer, **changes) for layer in spec.layers)  # type: ignore[arg-type]
    return replace(spec, layers=layers)


@dataclass(frozen=True)
class TinyModel:
    """A spec, its tensors as a file would hold them, and the numbers that those stand for."""

    spec: DecoderSpec
    matrices: dict[tuple[Slot, int | None], tuple[int, tuple[int, int], bytes]]
    vectors: dict[tuple[Slot, int | None], bytes]
    weights: Weights

    def decoder(self, num_threads: int = 1, isa: str | None = None) -> Decoder:
        decoder = Decoder(self.spec, num_threads=num_threads, isa=isa)
        for (slot, layer_idx), (ggml_type, shape, data) in self.matrices.items():
            decoder.load_matrix(slot, layer_idx, ggml_type, shape, memoryview(data))
        for (slot, layer_idx), data in self.vectors.items():
            decoder.load_vector(slot, layer_idx, memoryview(data))
        decoder.finish_loading()
        return decoder


def make_model(spec: DecoderSpec, types: Sequence[int] = (F32,), seed: int = 0) -> TinyModel:
    """``types`` are dealt out to the matrices in turn."""
    rng = np.random.default_rng(seed)
    model = TinyModel(spec, {}, {}, {})
    for count, (slot, layer_idx, shape) in enumerate(_matrix_shapes(spec)):
        ggml_type = types[count % len(types)]
        data = _random_matrix(rng, ggml_type, *shape)
        model.matrices[slot, layer_idx] = (ggml_type, shape, data)
        model.weights[slot, layer_idx] = _numbers(ggml_type, shape, data)
    for slot, layer_idx, size in _vector_sizes(spec):
        is_norm = "norm" in slot.value
        values = (rng.standard_normal(size) * 0.2 + is_norm).astype(np.float32)
        model.vectors[slot, layer_idx] = values.tobytes()
        model.weights[slot, layer_idx] = values.astype(np.float64)
    return model


def _matrix_shapes(spec: DecoderSpec) -> list[tuple[Slot, int | None, tuple[int, int]]]:
    hidden = spec.hidden_dim
    shapes: list[tuple[Slot, int | None, tuple[int, int]]] = [
        (Slot.EMBEDDING, None, (spec.vocab_size, hidden))
    ]
    if not spec.tied_output:
        shapes.append((Slot.OUTPUT, None, (spec.vocab_size, hidden)))
    for idx, layer in enumerate(spec.layers):
        q_dim, kv_dim = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
        shapes += [
            (Slot.Q, idx, (q_dim, hidden)),
            (Slot.K, idx, (kv_dim, hidden)),
            (Slot.V, idx, (kv_dim, hidden)),
            (Slot.ATTN_OUTPUT, idx, (hidden, q_dim)),
            (Slot.GATE, idx, (layer.mlp_dim, hidden)),
            (Slot.UP, idx, (layer.mlp_dim, hidden)),
            (Slot.DOWN, idx, (hidden, layer.mlp_dim)),
        ]
    return shapes


def _vector_sizes(spec: DecoderSpec) -> list[tuple[Slot, int | None, int]]:
    hidden = spec.hidden_dim
    sizes: list[tuple[Slot, int | None, int]] = [(Slot.OUTPUT_NORM, None, hidden)]
    for idx, layer in enumerate(spec.layers):
        kv_dim = layer.num_kv_heads * layer.head_dim
        sizes += [(Slot.ATTN_NORM, idx, hidden), (Slot.MLP_NORM, idx, hidden)]
        if layer.has_post_norms:
            sizes += [(Slot.POST_ATTN_NORM, idx, hidden), (Slot.POST_MLP_NORM, idx, hidden)]
        if layer.has_qk_norm:
            sizes += [(Slot.Q_NORM, idx, layer.head_dim), (Slot.K_NORM, idx, layer.head_dim)]
        if layer.has_qkv_bias:
            q_dim = layer.num_heads * layer.head_dim
            sizes += [(Slot.Q_BIAS, idx, q_dim)]
            sizes += [(Slot.K_BIAS, idx, kv_dim), (Slot.V_BIAS, idx, kv_dim)]
    return sizes


def _random_matrix(rng: np.random.Generator, ggml_type: int, rows: int, cols: int) -> bytes:
    """Sized so that a row's product with a normalised input has a deviation of about 1."""
    scale = cols**-0.5
    if ggml_type in (F32, F16):
        dtype = np.float32 if ggml_type == F32 else np.float16
        return (rng.standard_normal((rows, cols)) * scale).astype(dtype).tobytes()
    if ggml_type == BF16:
        bits = (rng.standard_normal((rows, cols)) * scale).astype(np.float32).view(np.uint32)
        return (bits >> 16).astype(np.uint16).tobytes()
    block_bytes, block_cols, scales_at = _BLOCKS[ggml_type]
    blocks = rng.integers(0, 256, (rows * cols // block_cols, block_bytes), np.uint8)
    for nth, offset in enumerate(scales_at):
        # The second scale is a minimum: added in Q4_1 and Q5_1, subtracted in the K types.
        sign = -1 if nth == 1 and ggml_type in (Q4_1, Q5_1) else 1
        size = scale * 2 / _CODE_MAX[ggml_type] if nth == 0 else scale
        if nth == 1 and ggml_type in (Q4_K, Q5_K):
            size = scale / 63  # times a 6-bit code
        values = sign * size * rng.uniform(0.5, 1.5, len(blocks))
        blocks[:, offset : offset + 2] = values.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.tobytes()


def _numbers(ggml_type: int, shape: tuple[int, int], data: bytes) -> np.ndarray:
    rows, cols = shape
    size = len(data) // rows
    view = memoryview(data)
    return np.array(
        [dequantize_row(ggml_type, cols, view[r * size : (r + 1) * size]) for r in range(rows)]
    )


class Driver:
    """Feeds sequences to a worker the plainest way: one block table each, blocks in any order."""

    def __init__(
        self,
        model: TinyModel,
        *,
        num_threads: int = 1,
        block_size: int = 16,
        num_blocks: int = 160,
        step_tokens_max: int = 512,
        isa: str | None = None,
        seed: int = 0,
    ) -> None:
        decoder = model.decoder(num_threads, isa)
        decoder.create_kv_cache(num_blocks, block_size, 32, step_tokens_max)
        self.worker = Worker(decoder)
        self._block_size = block_size
        # Shuffled, so that a result that hangs on where a block lies would show.
        self._free = [int(i) for i in np.random.default_rng(seed).permutation(num_blocks)]
        self._computed: dict[int, int] = {}
        self._tables: dict[int, list[int]] = {}
        self._opened: list[RowOpen] = []

    def open(self, row: int, sampling: RowSampling | None = None) -> None:
        self._opened.append(RowOpen(row, sampling or RowSampling(num_logprobs=VOCAB)))
        self._computed[row], self._tables[row] = 0, []

    def work(
        self, row: int, ids: Sequence[int], *, samples: bool = False, targets: Sequence[int] = ()
    ) -> RowWork:
        """Work that continues ``row``; no ids is a decode."""
        start, num_tokens = self._computed[row], max(1, len(ids))
        missing = -(-(start + num_tokens) // self._block_size) - len(self._tables[row])
        blocks = tuple(self.take_block() for _ in range(missing))
        self._tables[row] += blocks
        self._computed[row] = start + num_tokens
        return RowWork(row, start, num_tokens, tuple(ids), blocks, samples, tuple(targets))

    def step(self, *work: RowWork) -> tuple[RowResult, ...]:
        return self.worker.execute(StepPlan(0, opened=self.take_opened(), work=work)).rows

    def take_opened(self) -> tuple[RowOpen, ...]:
        opened, self._opened = tuple(self._opened), []
        return opened

    def take_block(self) -> int:
        return self._free.pop()

    def table(self, row: int) -> tuple[int, ...]:
        return tuple(self._tables[row])

    def score(self, row: int, ids: Sequence[int], chunks: Sequence[int] = ()) -> np.ndarray:
        """Log-probabilities [len(ids), vocab] of what follows each token, for a row just opened."""
        sizes = list(chunks) or [len(ids)]
        rows: list[list[float]] = []
        at = 0
        for size in sizes:
            chunk = ids[at : at + size]
            (result,) = self.step(self.work(row, chunk, targets=[0] * len(chunk)))
            assert result.error is None
            rows += [by_id(scored.top) for scored in result.scored]
            at += size
        assert at == len(ids)
        return np.array(rows)


def by_id(top: Sequence[tuple[int, float]]) -> list[float]:
    assert len(top) == VOCAB
    values = dict(top)
    return [values[token_id] for token_id in range(VOCAB)]
