# SPDX-License-Identifier: Apache-2.0
"""The dashboard that is shipped shows numbers that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from operatorkit import app_over, busy_engine
from prometheus_client.parser import text_string_to_metric_families
from serverkit import connect

PATH = Path(__file__).parents[2] / "deploy" / "grafana" / "octavo.json"
METRIC = re.compile(r"\b(?:octavo|vllm):\w+")
WANTED = (
    "Throughput",
    "Time to first token",
    "Time between tokens",
    "Whole answers",
    "Queues",
    "KV blocks",
    "Preemptions",
    "Prefix cache hit rate",
)


def expressions(document: dict) -> list[str]:
    return [target["expr"] for panel in document["panels"] for target in panel["targets"]]


def unknown(wanted: list[str], text: str) -> set[str]:
    """Metrics, and labels that sums are made by, that no sample in ``text`` has."""
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    names = {sample.name for sample in samples} | {family.name for family in families}
    missing = {name for one in wanted for name in METRIC.findall(one)} - names
    labels = {label for sample in samples for label in sample.labels}
    grouped = {label for one in wanted for label in re.findall(r"by \((\w+)\)", one)}
    return missing | (grouped - labels)


@pytest.fixture
def document() -> dict:
    return json.loads(PATH.read_text())


@pytest.fixture
async def text() -> str:
    async with connect(app_over(busy_engine())) as client:
        await client.get("/health")
        return (await client.get("/metrics")).text


@pytest.mark.anyio
async def test_every_metric_exists(document, text):
    assert len(expressions(document)) > 30
    assert unknown(expressions(document), text) == set()


@pytest.mark.anyio
async def test_one_that_does_not_would_be_noticed(text):
    assert unknown(["sum by (shape) (octavo:kv_blobs)"], text) == {"shape", "octavo:kv_blobs"}


def test_panels_are_those_that_an_operator_looks_for(document):
    titles = [panel["title"] for panel in document["panels"]]
    assert set(WANTED) <= set(titles)
    assert len(titles) == len(set(titles))
    ids = [panel["id"] for panel in document["panels"]]
    assert len(ids) == len(set(ids))


def test_panels_do_not_overlap(document):
    cells = [
        (x, y)
        for panel in document["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
