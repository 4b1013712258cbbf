# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from echo import PlanError
from octavo.scheduler.rows import Rows
from octavo.types.sequence import Sequence
from octavo.types.step import RowOpen, RowSampling
from schedkit import Rig, make_group

PENALISED = RowSampling(frequency_penalty=1.0)


def sequence(sampling: RowSampling) -> Sequence:
    group = make_group(0, [5, 6, 7])
    seq = Sequence(0, group, sampling)
    seq.token_ids += [8, 9]
    return seq


def test_a_row_is_told_what_came_before_only_if_its_settings_look_there() -> None:
    rows = Rows(2)
    rows.open(sequence(RowSampling()), 4, (1,))
    rows.open(sequence(PENALISED), 4, (2,))
    assert rows.take_changes()[1] == (
        RowOpen(0, RowSampling(), 4, (1,)),
        RowOpen(1, PENALISED, 4, (2,), history=(5, 6, 7, 8, 9), num_prompt=3),
    )


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_history_survives_preemption(mode: str) -> None:
    """The strict worker compares it with what it reads back at every sample."""
    rig = Rig(num_blocks=6, num_swap_blocks=8, preemption_mode=mode)
    for _ in range(3):
        group = rig.add(7, max_tokens=20)
        for seq in group.sequences:
            seq.sampling = PENALISED
    rig.drain()
    counts = rig.scheduler.preemptions
    assert (counts.num_swaps if mode == "swap" else counts.num_recomputes) > 0


def test_a_history_that_lost_a_token_is_seen() -> None:
    class Forgetful(Rows):
        __slots__ = ()

        def open(self, seq: Sequence, num_computed: int, blocks: tuple[int, ...]) -> int:
            lost = seq.token_ids.pop()
            try:
                return super().open(seq, num_computed, blocks)
            finally:
                seq.token_ids.append(lost)

    rig = Rig()
    rig.scheduler._rows.__class__ = Forgetful
    rig.add(7).sequences[0].sampling = PENALISED
    with pytest.raises(PlanError, match="row 0 has 6 tokens known"):
        rig.plan()
