# SPDX-License-Identifier: Apache-2.0
"""What operators see of the engine, as plain data: states, counts and block numbers.

Never a prompt, a token or a parameter. Each function takes the engine and must run in its thread
(``AsyncEngine.ask``), because only that one may read the books; each changes nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TypedDict

from octavo.cache.audit import BlockRecord
from octavo.engine.engine import Engine
from octavo.types.errors import InvalidRequest
from octavo.types.sequence import Sequence, SequenceGroup, SequenceStatus

JsonDict = dict[str, object]

DIGEST_DIGITS = 16  # of 64: enough to tell blocks apart
HOLDERS_SHOWN = 10

# A group is in the state of its busiest sequence.
_BY_BUSYNESS = (
    SequenceStatus.RUNNING,
    SequenceStatus.SWAPPED,
    SequenceStatus.PREEMPTED,
    SequenceStatus.WAITING,
)


class Backlog(TypedDict):
    """Tokens still to be computed before their owners can go on, at ``time_s`` of the engine, and
    the ``seconds`` of prefill that they take at the pace of the latest steps; None if that is not
    known yet."""

    time_s: float
    num_prefill_tokens: int
    seconds: float | None


def requests(engine: Engine) -> list[JsonDict]:
    """Every request that is here, oldest first. O(requests + blocks that they hold)."""
    groups = sorted(engine.groups.values(), key=lambda group: group.seniority)
    now = engine.clock()
    return [_request(engine, group, now) for group in groups]


def _request(engine: Engine, group: SequenceGroup, now: float) -> JsonDict:
    tables = (engine.blocks.table(seq.seq_id) for seq in group.unfinished)
    held = {i for table in tables if table is not None for i in table.ids[table.num_hidden :]}
    started = group.first_scheduled_time
    return {
        "id": group.request_id,
        "state": _state(group),
        "class": group.request.service_class.value,
        "priority": group.request.priority,
        "num_sequences": len(group.unfinished),
        "num_prompt_tokens": len(group.request.prompt_token_ids),
        "num_cached_tokens": group.num_cached_tokens,
        "num_computed_tokens": sum(seq.num_computed for seq in group.unfinished),
        "num_output_tokens": group.num_outputs,
        "num_blocks": len(held),
        "waiting_s": (now if started is None else started) - group.arrival_time,
        "age_s": now - group.arrival_time,
        "num_preemptions": group.num_preemptions,
    }


def _state(group: SequenceGroup) -> str:
    statuses = {seq.status for seq in group.sequences}
    found = (status.value for status in _BY_BUSYNESS if status in statuses)
    return next(found, SequenceStatus.FINISHED.value)


def request_blocks(engine: Engine, name: str) -> JsonDict | None:
    """The block tables of one request: a sequence after the other, a block after the other.

    ``name`` is its id or the beginning of it; None when no request is called so, and
    ``InvalidRequest`` when several are. A block that is swapped out has no ``block_id``, but a
    ``swap_copy``. With a swapped sequence it costs O(all blocks).
    """
    group = _find(engine, name)
    if group is None:
        return None
    return {
        "id": group.request_id,
        "state": _state(group),
        "block_size": engine.blocks.block_size,
        "sequences": [_sequence(engine, seq) for seq in group.unfinished],
    }


def _find(engine: Engine, name: str) -> SequenceGroup | None:
    if name in engine.groups:
        return engine.groups[name]
    found = [group for request_id, group in engine.groups.items() if request_id.startswith(name)]
    if len(found) > 1:
        raise InvalidRequest(f"{len(found)} requests begin so; give more of the id", param="id")
    return found[0] if found else None


def _sequence(engine: Engine, seq: Sequence) -> JsonDict:
    blocks, size = engine.blocks, engine.blocks.block_size
    table = blocks.table(seq.seq_id)
    first, held = 0, list[JsonDict]()
    if table is not None:
        first = table.num_hidden
        held = [_block(blocks.explain(block_id)) for block_id in table.ids[first:]]
    elif blocks.is_swapped(seq.seq_id):
        swapped = blocks.report(num_holders=0).swapped[seq.seq_id]
        first = swapped.num_hidden
        held = [
            _block(blocks.explain(block_id)) if on_device else _swapped_block(block_id)
            for block_id, on_device in swapped.blocks[first:]
        ]
    num_filled = max(seq.num_computed, seq.num_kept)
    rows = [
        {"index": idx, "num_tokens": min(size, max(0, num_filled - idx * size))} | block
        for idx, block in enumerate(held, first)
    ]
    return {
        "seq_id": seq.seq_id,
        "sample": seq.sampling.sample_idx,
        "state": seq.status.value,
        "num_tokens": seq.num_tokens,
        "num_computed_tokens": seq.num_computed,
        "blocks": rows,
    }


def _block(record: BlockRecord) -> JsonDict:
    digest = record.digest
    return {
        "block_id": record.block_id,
        "state": block_state(record),
        "ref_count": record.ref_count,
        "num_pins": record.num_pins,
        "owners": list(record.owners),
        "digest": None if digest is None else digest[:DIGEST_DIGITS],
        "swap_copy": record.swap_copy,
        "last_use_step": record.last_use_step,
    }


def _swapped_block(swap_block: int) -> JsonDict:
    """In the words of ``_block``; the device has nothing to say about it."""
    nothing = ("block_id", "ref_count", "num_pins", "digest", "last_use_step")
    known = {"state": "swapped", "owners": [], "swap_copy": swap_block}
    return dict.fromkeys(nothing) | known


def block_state(record: BlockRecord) -> str:
    """The place of a block in one word; blocks in use that several tables name are ``shared``."""
    if record.is_null:
        return "null"
    if record.ref_count > 1:
        return "shared"
    return "in use" if record.ref_count else record.place.value


def blocks_summary(engine: Engine) -> JsonDict:
    """Both tiers in numbers, and what does not balance. O(blocks)."""
    report = engine.blocks.report(num_holders=HOLDERS_SHOWN)
    names = _names(engine)
    return {
        "block_size": engine.blocks.block_size,
        "usage": asdict(engine.blocks.usage()),
        "ref_histogram": {str(refs): count for refs, count in report.ref_histogram.items()},
        "top_holders": [
            {"seq_id": seq_id, "request_id": names.get(seq_id), "num_blocks": count}
            for seq_id, count in report.top_holders
        ],
        "orphans": [orphan.block_id for orphan in report.orphans],
        "quarantined": list(report.quarantined),
        "faults": list(report.faults),
    }


def blocks_full(engine: Engine, *, first: int, limit: int) -> JsonDict:
    """The summary, and the blocks from number ``first`` on, at most ``limit``. O(all blocks)."""
    every = engine.blocks.dump()
    records = every[first : first + limit]
    num_left_out = max(0, len(every) - first - len(records))
    named = {owner for record in records for owner in record.owners}
    return {
        **blocks_summary(engine),
        "first": first,
        "num_left_out": num_left_out,
        "requests": {str(i): name for i, name in _names(engine).items() if i in named},
        "blocks": [_block(record) for record in records],
    }


def block_explained(engine: Engine, block_id: int) -> JsonDict | None:
    """One block with its last transitions, oldest first; None when there is no such block."""
    try:
        record = engine.blocks.explain(block_id)
    except IndexError:
        return None
    involved = {*record.owners, *(t.owner for t in record.history if t.owner is not None)}
    names = engine.trace.requests_of(involved) | _names(engine)
    return {
        **_block(record),
        "requests": {str(i): names[i] for i in involved if i in names},
        "history": [transition._asdict() for transition in record.history],
    }


def _names(engine: Engine) -> dict[int, str]:
    """Which request each sequence belongs to."""
    groups = engine.groups.values()
    return {seq.seq_id: group.request_id for group in groups for seq in group.sequences}


def backlog(engine: Engine) -> Backlog:
    """O(sequences)."""
    groups = engine.groups.values()
    num_tokens = sum(_to_prefill(seq) for group in groups for seq in group.sequences)
    costs = engine.costs
    num_steps = -(-num_tokens // engine.config.scheduler.max_num_batched_tokens)
    seconds = num_steps * costs.predict(0, 0) + num_tokens * costs.prefill_s_per_token
    return Backlog(
        time_s=engine.clock(),
        num_prefill_tokens=num_tokens,
        seconds=seconds if costs.is_ready else None,
    )


def _to_prefill(seq: Sequence) -> int:
    """Tokens to compute before the next one can be sampled, beside the last, which is a decode.

    What is swapped out comes back computed, and samples that never ran fork from the first one.
    """
    is_sibling = seq.status is SequenceStatus.WAITING and seq is not seq.group.sequences[0]
    if is_sibling or seq.status in (SequenceStatus.SWAPPED, SequenceStatus.FINISHED):
        return 0
    return max(0, seq.num_tokens - 1 - seq.num_computed)
