# SPDX-License-Identifier: Apache-2.0
"""Which row of the worker belongs to which sequence."""

from __future__ import annotations

from dataclasses import replace

from octavo.types.errors import CorruptState
from octavo.types.sequence import Sequence
from octavo.types.step import RowOpen


class Rows:
    """Hands rows out and takes them back, and remembers what to tell the worker in the next plan.

    A row may change hands between two plans: a plan closes rows before it opens any.
    """

    __slots__ = ("_closed", "_free", "_opened", "num_rows")

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._free = list(range(num_rows - 1, -1, -1))
        self._closed: list[int] = []  # given up since the last plan
        self._opened: dict[int, RowOpen] = {}  # handed out since the last plan

    @property
    def num_free(self) -> int:
        return len(self._free)

    def open(self, seq: Sequence, num_computed: int, blocks: tuple[int, ...]) -> int:
        """Give a row to a sequence; its first ``num_computed`` tokens are in ``blocks``."""
        if seq.row is not None or not self._free:
            raise CorruptState(f"sequence {seq.seq_id} has a row, or none is left to give it")
        row = seq.row = self._free.pop()
        opened = RowOpen(row, seq.sampling, num_computed, blocks)
        if seq.sampling.needs_history:
            opened = replace(opened, history=tuple(seq.token_ids), num_prompt=seq.num_prompt)
        self._opened[row] = opened
        return row

    def close(self, seq: Sequence) -> None:
        """Take the row back, if there is one. One that the worker has not seen open never was."""
        row = seq.row
        if row is None:
            return
        seq.row = None
        self._free.append(row)
        if self._opened.pop(row, None) is None:
            self._closed.append(row)

    def take_changes(self) -> tuple[tuple[int, ...], tuple[RowOpen, ...]]:
        """The rows closed and opened since the last call."""
        closed, opened = tuple(self._closed), tuple(self._opened.values())
        self._closed.clear()
        self._opened.clear()
        return closed, opened

    def check(self, held: list[int]) -> None:
        """Raise ``CorruptState`` unless free rows and ``held`` ones are all rows, each once."""
        if sorted([*self._free, *held]) != list(range(self.num_rows)):
            raise CorruptState(
                f"{len(self._free)} free rows and {len(held)} held ones of {self.num_rows} rows"
            )
