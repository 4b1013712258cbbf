# SPDX-License-Identifier: Apache-2.0
"""The native decoder in octavo's own types: a ``DecoderSpec``, weights, and one call per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import TracebackType

from octavo import _native
from octavo.types.decoder_spec import (
    Activation,
    DecoderSpec,
    LayerSpec,
    RopePairing,
    RopeSpec,
    Slot,
)
from octavo.types.step import RowOpen, RowSampling

# Longer than any barrier between threads that all run; a longer wait means a descheduled peer.
DEFAULT_SPIN_US = 50

# The core computes in float32, where a smaller number is 0 or nearly so.
FLOAT32_MIN = 2.0**-126

_PAIRINGS = {
    RopePairing.INTERLEAVED: _native.RopePairing.INTERLEAVED,
    RopePairing.HALVES: _native.RopePairing.HALVES,
}
_ACTIVATIONS = {
    Activation.SILU: _native.MlpActivation.SILU,
    Activation.GELU_TANH: _native.MlpActivation.GELU_TANH,
}
_SLOTS = {slot: _native.Slot[slot.name] for slot in Slot}


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes. KV memory and scratch are reserved as addresses, and committed when first used."""

    weights_bytes: int
    kv_bytes: int
    kv_bytes_per_block: int
    scratch_bytes: int
    swap_bytes: int = 0  # size of the swap tier, in memory or in a file


@dataclass(frozen=True, slots=True)
class SwapTotals:
    """What swapping has cost since the tier was made."""

    blocks_in: int
    blocks_out: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FlatBatch:
    """A step as flat arrays. ``work`` holds one tuple per row: (row, start, num_tokens,
    num_token_ids, num_new_blocks, num_targets, samples, num_replaced, logits_of,
    num_allowed_bytes); the lists after it hold what belongs to all rows, in the order of ``work``.
    ``copies`` holds (src, dst, num_tokens), ``replaced`` (index in the row's table, block id),
    ``allowed`` bit masks.
    """

    closed: Sequence[int]
    opened: Sequence[RowOpen]
    copies: Sequence[tuple[int, int, int]]
    work: Sequence[tuple[int, int, int, int, int, int, bool, int, int | None, int]]
    token_ids: Sequence[int]
    new_blocks: Sequence[int]
    targets: Sequence[int]
    replaced: Sequence[tuple[int, int]] = ()
    swap_ins: Sequence[tuple[int, int]] = ()
    swap_outs: Sequence[tuple[int, int]] = ()
    allowed: bytes = b""


class Decoder:
    """One model on one machine: weights, KV memory, compute threads.

    Life: ``load_*`` for every tensor, ``finish_loading``, ``create_kv_cache``, ``create_swap`` if
    there is to be a swap tier, then ``step``. Calls out of order raise RuntimeError. Not safe for
    two threads at once. The GIL is released while matrices are packed and while a step computes.

    ``isa`` names a kernel table; None takes the best that runs here. Raises ValueError for a spec
    that cannot run, naming the field, and for a table that is unknown or cannot run here.
    ``spin_us`` is how long a waiting compute thread spins before it parks.
    """

    def __init__(
        self,
        spec: DecoderSpec,
        *,
        num_threads: int,
        isa: str | None = None,
        spin_us: int = DEFAULT_SPIN_US,
    ) -> None:
        self._native: _native.Decoder | None = _native.Decoder(
            _decoder_config(spec), num_threads, isa or None, spin_us
        )
        self.num_blocks = 0  # these are 0 until there is a KV cache
        self.block_size = 0
        self.num_rows = 0
        self.num_swap_blocks = 0  # and this until there is a swap tier

    @property
    def isa(self) -> str:
        return self._live.isa

    @property
    def num_threads(self) -> int:
        return self._live.num_threads

    def load_matrix(
        self,
        slot: Slot,
        layer_idx: int | None,
        ggml_type: int,
        shape: tuple[int, int],
        data: memoryview,
    ) -> None:
        """Pack a matrix of ``shape`` (rows, cols) from bytes in the file's own format, row-major.

        ``data`` is a contiguous view of unsigned bytes and may be mapped; it is read once and not
        kept. Raises ValueError, naming the slot, for a wrong shape, type or length.
        """
        rows, cols = shape
        self._live.load_matrix(_SLOTS[slot], layer_idx, ggml_type, rows, cols, data)

    def load_vector(self, slot: Slot, layer_idx: int | None, values: memoryview) -> None:
        """Keep a vector, given as the bytes of little-endian float32."""
        self._live.load_vector(_SLOTS[slot], layer_idx, values)

    def finish_loading(self) -> None:
        """Raises RuntimeError that lists every tensor still missing."""
        self._live.finish_loading()

    def kv_bytes_per_block(self, block_size: int) -> int:
        return self._live.kv_bytes_per_block(block_size)

    def create_kv_cache(
        self, num_blocks: int, block_size: int, num_rows: int, step_tokens_max: int
    ) -> None:
        """Reserve the KV pool and the working memory of steps of up to ``step_tokens_max`` tokens.

        Raises ValueError for a size out of range, MemoryError when the system refuses.
        """
        self._live.create_kv(num_blocks, block_size, num_rows, step_tokens_max)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_rows = num_rows

    def create_swap(self, num_blocks: int, path: str | None = None) -> None:
        """Add a swap tier of ``num_blocks``: in memory, committed as it is used, or in a sparse
        file without a name in the folder ``path``.

        Raises ValueError for a size out of range, RuntimeError, with the system's reason, when the
        file cannot be made, MemoryError.
        """
        self._live.create_swap(num_blocks, path)
        self.num_swap_blocks = num_blocks

    def step(self, batch: FlatBatch) -> list[_native.RowOutcome]:
        """Run one step; outcomes follow ``batch.work``.

        A row whose settings, history, ids or mask are refused answers the reason as its error, and
        the others go on. Raises ValueError that names the field, with nothing changed, for a batch
        that does not fit the rows as they are. Raises RuntimeError, with the system's reason and
        before anything is computed, when the swap file fails: ``abandon`` the batch then.
        """
        return self._live.step(_native_batch(batch))

    def abandon(self, batch: FlatBatch) -> None:
        """Of a batch that ``step`` refused or failed: close and open its rows all the same, as
        far as they exist, and fail every row that it opens or gives work to.

        Until it is closed a failed row computes nothing and answers an error to whatever is asked
        of it, so batches that were planned before the failure was seen do not fail with it.
        """
        self._live.abandon(_native_batch(batch))

    def swap_totals(self) -> SwapTotals:
        totals = self._live.swap_totals()
        return SwapTotals(totals.blocks_in, totals.blocks_out, totals.seconds)

    def memory_report(self) -> MemoryReport:
        report = self._live.memory_report()
        return MemoryReport(
            weights_bytes=report.weights_bytes,
            kv_bytes=report.kv_bytes,
            kv_bytes_per_block=report.kv_bytes_per_block,
            scratch_bytes=report.scratch_bytes,
            swap_bytes=report.swap_bytes,
        )

    def close(self) -> None:
        """Free weights, KV memory and threads. Idempotent; any other call then raises."""
        self._native = None

    def __enter__(self) -> Decoder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _live(self) -> _native.Decoder:
        if self._native is None:
            raise RuntimeError("the decoder is closed")
        return self._native


def _decoder_config(spec: DecoderSpec) -> _native.DecoderConfig:
    config = _native.DecoderConfig()
    config.hidden_dim = spec.hidden_dim
    config.vocab_size = spec.vocab_size
    config.context_length = spec.context_length
    config.norm_eps = spec.norm_eps
    config.layers = [_layer_config(layer) for layer in spec.layers]
    config.ropes = [_rope_config(rope) for rope in spec.ropes]
    config.embedding_scale = spec.embedding_scale
    config.logit_scale = spec.logit_scale
    config.logit_soft_cap = _cap("logit_soft_cap", spec.logit_soft_cap)
    config.tied_output = spec.tied_output
    return config


def _layer_config(spec: LayerSpec) -> _native.LayerConfig:
    config = _native.LayerConfig()
    config.num_heads = spec.num_heads
    config.num_kv_heads = spec.num_kv_heads
    config.head_dim = spec.head_dim
    config.mlp_dim = spec.mlp_dim
    config.activation = _ACTIVATIONS[spec.activation]
    config.rope_idx = spec.rope_idx
    config.attn_scale = spec.attn_scale
    if spec.window is not None and spec.window < 1:
        raise ValueError(f"window must be at least 1 or None, got {spec.window}")
    config.window = spec.window or 0
    config.attn_soft_cap = _cap("attn_soft_cap", spec.attn_soft_cap)
    config.has_qk_norm = spec.has_qk_norm
    config.has_post_norms = spec.has_post_norms
    config.has_qkv_bias = spec.has_qkv_bias
    return config


def _rope_config(spec: RopeSpec) -> _native.RopeConfig:
    config = _native.RopeConfig()
    config.pairing = _PAIRINGS[spec.pairing]
    config.inv_freq = spec.inv_freq
    config.magnitude = spec.magnitude
    return config


def _cap(name: str, value: float | None) -> float:
    """The core spells "no cap" as 0, so a cap of 0 must not pass for one."""
    if value is None:
        return 0.0
    if not value > 0:
        raise ValueError(f"{name} must be above 0 or None, got {value}")
    return value


def _native_batch(batch: FlatBatch) -> _native.Batch:
    return _native.Batch(
        closed=batch.closed,
        opened=[_open_row(row) for row in batch.opened],
        swap_ins=batch.swap_ins,
        swap_outs=batch.swap_outs,
        copies=batch.copies,
        work=batch.work,
        token_ids=batch.token_ids,
        new_blocks=batch.new_blocks,
        targets=batch.targets,
        replaced=batch.replaced,
        allowed=batch.allowed,
    )


def _open_row(row: RowOpen) -> _native.RowOpen:
    refusal = None
    try:
        sampling = _sampling_spec(row.sampling)
    except ValueError as error:  # of this row alone: it fails, and says why
        sampling, refusal = _native.SamplingSpec(), str(error)
    return _native.RowOpen(
        row.row,
        sampling=sampling,
        num_computed=row.num_computed,
        blocks=row.blocks,
        history=() if refusal else row.history,
        num_prompt=0 if refusal else row.num_prompt,
        refusal=refusal,
    )


def _sampling_spec(sampling: RowSampling) -> _native.SamplingSpec:
    """Only what differs from the defaults, which are the core's too, is set: few rows set much.
    Raises ValueError for what the core has no number for, such as a top_k below 0."""
    spec = _native.SamplingSpec()
    for name, default in _SAMPLING_FIELDS:
        value = getattr(sampling, name)
        if value == default:
            continue
        if name in _ABOVE_0 and 0 < value < FLOAT32_MIN:
            value = FLOAT32_MIN
        try:
            setattr(spec, name, value)
        except (TypeError, OverflowError):
            raise ValueError(f"{name} cannot be {value!r}"[:200]) from None
    return spec


_SAMPLING_FIELDS = [(field.name, field.default) for field in fields(RowSampling)]
_ABOVE_0 = frozenset({"top_p", "typical_p", "repetition_penalty"})  # and so they must stay
