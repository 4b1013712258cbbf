# SPDX-License-Identifier: Apache-2.0
"""Do queues, states, rows and blocks agree?"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.cache.block_manager import BlockManager
from octavo.scheduler.queues import Queues
from octavo.scheduler.rows import Rows
from octavo.types.errors import CorruptState
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus

_WAITING = {SequenceStatus.WAITING, SequenceStatus.PREEMPTED}
ALLOWED = {
    "waiting": _WAITING,
    "running": _WAITING | {SequenceStatus.RUNNING},  # a sample that has yet to branch off
    "swapped": _WAITING | {SequenceStatus.SWAPPED},
}


def check_scheduler(queues: Queues, rows: Rows, blocks: BlockManager) -> None:
    """Raise ``CorruptState``, naming what is wrong, unless they do. O(everything)."""
    seqs: list[Sequence] = []
    for name, allowed in ALLOWED.items():
        groups: Iterable[SequenceGroup] = getattr(queues, name)
        mine = [seq for group in groups for seq in group.unfinished]
        wrong = [seq.seq_id for seq in mine if seq.status not in allowed]
        if wrong:
            raise CorruptState(f"sequences {wrong} are in a queue that is not their status: {name}")
        seqs += mine
    for group in queues.swapped:
        if not any(seq.status is SequenceStatus.SWAPPED for seq in group.sequences):
            raise CorruptState(f"request {group.request_id!r} is swapped and has nothing there")
    running = [seq for seq in seqs if seq.status is SequenceStatus.RUNNING]
    swapped = [seq for seq in seqs if seq.status is SequenceStatus.SWAPPED]
    kept = [seq for seq in seqs if seq.num_kept]
    wrong = [seq.seq_id for seq in kept if seq.status is not SequenceStatus.PREEMPTED]
    if wrong:
        raise CorruptState(f"sequences {wrong} keep a part of their blocks and are not preempted")
    _check_rows(seqs, running, rows)
    for seq in seqs:
        _check_positions(seq)
    blocks.check({seq.seq_id for seq in [*running, *swapped, *kept]})


def _check_rows(seqs: list[Sequence], running: list[Sequence], rows: Rows) -> None:
    held = [seq.row for seq in seqs if seq.row is not None]
    rows.check(held)
    if len(held) != len(running) or any(seq.row is None for seq in running):
        raise CorruptState(f"{len(held)} rows are held by {len(running)} running sequences")


def _check_positions(seq: Sequence) -> None:
    in_order = 0 <= seq.num_computed <= seq.num_planned <= seq.num_expected
    has_tokens = seq.status in (SequenceStatus.RUNNING, SequenceStatus.SWAPPED)
    if not in_order or (not has_tokens and (seq.num_planned or seq.num_inflight_samples)):
        raise CorruptState(
            f"sequence {seq.seq_id} ({seq.status.value}) has computed {seq.num_computed}, planned"
            f" {seq.num_planned} and expects {seq.num_expected} tokens"
        )
