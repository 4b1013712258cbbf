# SPDX-License-Identifier: Apache-2.0
"""A decoder that only remembers what it was given."""

from __future__ import annotations

from octavo.types.decoder_spec import Slot


class RecordingSink:
    def __init__(self) -> None:
        self.matrices: dict[tuple[Slot, int | None], tuple[int, tuple[int, int], bytes]] = {}
        self.vectors: dict[tuple[Slot, int | None], bytes] = {}
        self.finished = False

    def load_matrix(
        self,
        slot: Slot,
        layer_idx: int | None,
        ggml_type: int,
        shape: tuple[int, int],
        data: memoryview,
    ) -> None:
        assert not self.finished
        self.matrices[slot, layer_idx] = (ggml_type, shape, bytes(data))

    def load_vector(self, slot: Slot, layer_idx: int | None, values: memoryview) -> None:
        assert not self.finished
        self.vectors[slot, layer_idx] = bytes(values)

    def finish_loading(self) -> None:
        self.finished = True
