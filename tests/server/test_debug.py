# SPDX-License-Identifier: Apache-2.0
"""The operator's routes over an engine that stands still."""

from __future__ import annotations

import pytest
from operatorkit import SECRET, app_over, busy_engine, swapping_engine
from serverkit import connect, make_app

from octavo.engine.engine import Engine

pytestmark = pytest.mark.anyio

ROUTES = (
    "/debug/requests",
    "/debug/requests/pair-1/blocks",
    "/debug/blocks",
    "/debug/blocks?format=full",
    "/debug/blocks/0",
    "/debug/trace",
)


async def get(engine: Engine, path: str, status: int = 200):
    async with connect(app_over(engine)) as client:
        response = await client.get(path)
    assert response.status_code == status, response.text
    return response.json()


async def test_requests_show_states_counts_and_times():
    pair, late = (await get(busy_engine(), "/debug/requests"))["requests"]
    assert pair == {
        "id": "pair-1",
        "state": "running",
        "class": "standard",
        "priority": 0,
        "num_sequences": 2,
        "num_prompt_tokens": 24,
        "num_cached_tokens": 0,
        # Each of the four steps but the first computes the token before the one it samples.
        "num_computed_tokens": 2 * (24 + 3),
        "num_output_tokens": 2 * 4,
        "num_blocks": 3 + 2,  # the prompt's are shared
        "waiting_s": 0.0,
        "age_s": 1.75,
        "num_preemptions": 0,
    }
    assert (late["id"], late["state"], late["num_blocks"]) == ("late-1", "waiting", 0)
    assert (late["waiting_s"], late["age_s"]) == (0.25, 0.25)


@pytest.mark.parametrize("name", ["pair-1", "pair", "p"])
async def test_a_block_table_in_order_with_references_and_states(name):
    engine = busy_engine()
    found = await get(engine, f"/debug/requests/{name}/blocks")
    assert (found["id"], found["state"], found["block_size"]) == ("pair-1", "running", 8)
    first, second = found["sequences"]
    group = engine.groups["pair-1"]
    for seq, shown in zip(group.sequences, (first, second), strict=True):
        assert shown["seq_id"] == seq.seq_id
        assert [b["block_id"] for b in shown["blocks"]] == engine.blocks.table(seq.seq_id).ids
        assert [b["index"] for b in shown["blocks"]] == [0, 1, 2, 3]
        assert [b["num_tokens"] for b in shown["blocks"]] == [8, 8, 8, 3]
        assert [b["ref_count"] for b in shown["blocks"]] == [2, 2, 2, 1]
        assert [b["state"] for b in shown["blocks"]] == ["shared"] * 3 + ["in use"]
        assert shown["blocks"][0]["owners"] == [seq.seq_id for seq in group.sequences]
        assert len(shown["blocks"][0]["digest"]) == 16
        assert shown["blocks"][3]["digest"] is None


async def test_a_waiting_request_has_no_blocks():
    (seq,) = (await get(busy_engine(), "/debug/requests/late-1/blocks"))["sequences"]
    assert (seq["state"], seq["blocks"]) == ("waiting", [])


async def test_unknown_and_ambiguous_names_are_refused():
    engine = swapping_engine()
    unknown = await get(engine, "/debug/requests/nobody/blocks", status=404)
    assert "nobody" in unknown["error"]["message"]
    ambiguous = await get(engine, "/debug/requests/r/blocks", status=400)
    assert ambiguous["error"]["message"].startswith("4 requests begin so")


async def test_a_swapped_request_is_told_from_a_running_one():
    engine = swapping_engine()
    rows = {row["id"]: row for row in (await get(engine, "/debug/requests"))["requests"]}
    swapped = [name for name, row in rows.items() if row["state"] == "swapped"]
    assert len(swapped) == engine.stats().num_swapped > 0
    assert rows[swapped[0]]["num_blocks"] == 0
    assert rows[swapped[0]]["num_preemptions"] == 1
    found = await get(engine, f"/debug/requests/{swapped[0]}/blocks")
    assert [seq["state"] for seq in found["sequences"]] == ["swapped"]
    (seq,) = found["sequences"]
    blocks = seq["blocks"]
    assert sum(block["num_tokens"] for block in blocks) == seq["num_computed_tokens"] > 0
    assert [block["index"] for block in blocks] == list(range(len(blocks)))
    stayed = [r.block_id for r in engine.blocks.dump() if seq["seq_id"] in r.owners]
    assert [b["block_id"] for b in blocks if b["state"] != "swapped"] == stayed
    moved = [block["swap_copy"] for block in blocks if block["state"] == "swapped"]
    assert len(set(moved)) == len(moved) == len(blocks) - len(stayed) > 0
    assert len(moved) <= engine.blocks.usage().num_swap_referenced


async def test_summary_names_the_holders_and_balances():
    engine = busy_engine()
    found = await get(engine, "/debug/blocks")
    usage = found["usage"]
    places = ("num_free", "num_cached", "num_referenced", "num_limbo")
    assert sum(usage[place] for place in places) == usage["num_blocks"] == 64
    assert found["ref_histogram"] == {"0": 59, "1": 2, "2": 3}
    assert [holder["request_id"] for holder in found["top_holders"]] == ["pair-1"] * 2
    assert found["faults"] == found["orphans"] == found["quarantined"] == []
    assert "blocks" not in found


async def test_a_lost_decrement_is_named():
    engine = busy_engine()
    (block_id, *_) = engine.blocks.table(engine.groups["pair-1"].sequences[0].seq_id).ids
    engine.blocks._pool.share([block_id])
    found = await get(engine, "/debug/blocks")
    assert found["orphans"] == [block_id]
    assert any(str(block_id) in fault for fault in found["faults"])


async def test_full_comes_in_pieces_that_say_what_is_left():
    engine = busy_engine()
    whole = await get(engine, "/debug/blocks?format=full")
    assert (len(whole["blocks"]), whole["num_left_out"]) == (64, 0)
    assert set(whole["requests"].values()) == {"pair-1"}
    pieces = []
    for first in (0, 40):
        part = await get(engine, f"/debug/blocks?format=full&first={first}&limit=40")
        assert part["num_left_out"] == max(0, 64 - first - 40)
        pieces += part["blocks"]
    assert pieces == whole["blocks"]
    beyond = await get(engine, "/debug/blocks?format=full&first=99")
    assert (beyond["blocks"], beyond["num_left_out"]) == ([], 0)


async def test_one_block_with_its_history():
    engine = busy_engine()
    seq_id = engine.groups["pair-1"].sequences[0].seq_id
    block_id = engine.blocks.table(seq_id).ids[0]
    found = await get(engine, f"/debug/blocks/{block_id}")
    assert found["requests"][str(seq_id)] == "pair-1"
    operations = [event["operation"] for event in found["history"]]
    assert operations[0] == "admit"
    assert {"fork", "publish"} <= set(operations)
    await get(engine, "/debug/blocks/64", status=404)


@pytest.mark.parametrize(
    "path", ["/debug/blocks?format=xml", "/debug/blocks?format=full&first=-1", "/debug/blocks/x"]
)
async def test_what_is_no_question_is_400(path):
    await get(busy_engine(), path, status=400)


async def test_the_trace_opens_in_a_viewer():
    events = (await get(busy_engine(), "/debug/trace"))["traceEvents"]
    assert [e["name"] for e in events if e.get("cat") == "step"] == [
        f"step {number}" for number in range(1, 5)
    ]
    assert all({"name", "ph", "pid", "tid"} <= event.keys() for event in events)


async def test_nothing_shows_prompts_or_tokens():
    engine = busy_engine()
    async with connect(app_over(engine)) as client:
        for path in (*ROUTES, "/load"):
            text = (await client.get(path)).text
            assert SECRET not in text
            assert "token_ids" not in text


async def test_the_routes_are_there_only_when_asked_for():
    async with connect(app_over(busy_engine(), debug_routes=False)) as client:
        assert [(await client.get(path)).status_code for path in ROUTES] == [404] * len(ROUTES)
        assert (await client.get("/load")).status_code == 200
    assert "/debug/blocks" not in make_app().openapi()["paths"]
