# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from octavo.bench.datasets import (
    BadDataset,
    Shape,
    Turn,
    read_azure,
    read_custom,
    read_mooncake,
    read_sharegpt,
    read_sonnet,
)

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9305900,396,109\n"
    "2023-11-16 18:16:00,91,16\n"
)
MOONCAKE = (
    '{"timestamp": 1000, "input_length": 700, "output_length": 500, "hash_ids": [0, 1]}\n'
    "\n"
    '{"timestamp": 4000, "input_length": 900, "output_length": 490, "hash_ids": [0, 2]}\n'
)


@pytest.fixture
def write(tmp_path):
    def write_file(data: str | bytes) -> Path:
        path = tmp_path / "file"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write_file


def test_azure(write):
    first, second, third = read_azure(write(AZURE), 10)
    assert first == Shape(374, 44, 0.0)
    assert (second.num_prompt_tokens, second.num_output_tokens) == (396, 109)
    assert second.at_s == pytest.approx(4.25, abs=1e-6)
    assert third.at_s == pytest.approx(13.31941, abs=1e-6)


def test_mooncake(write):
    shapes = read_mooncake(write(MOONCAKE), 10)
    assert shapes == [Shape(700, 500, 0.0, (0, 1)), Shape(900, 490, 3.0, (0, 2))]


def test_only_as_many_rows_as_wanted_are_read(write):
    assert len(read_azure(write(AZURE + "nonsense\n"), 3)) == 3
    assert len(read_mooncake(write(MOONCAKE + "nonsense\n"), 2)) == 2


def test_compressed_files_are_read_as_such(write):
    assert len(read_mooncake(write(gzip.compress(MOONCAKE.encode())), 10)) == 2
    assert len(read_azure(write(gzip.compress(AZURE.encode())), 10)) == 3


def test_sharegpt_takes_the_first_two_turns(write):
    rows = [
        {"id": "a", "conversations": [{"from": "human", "value": v} for v in ("q", "a", "more")]},
        {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
        {"id": "c", "conversations": [{"value": "q"}, {"value": ""}]},
    ]
    assert read_sharegpt(write(json.dumps(rows))) == [Turn("q", "a")]


def test_custom(write):
    path = write('{"prompt": "a"}\n{"prompt": "b", "output_tokens": 5, "other": 1}\n')
    assert read_custom(path, 10) == [Turn("a"), Turn("b", num_output_tokens=5)]


def test_sonnet(write):
    assert read_sonnet(write("one\n\n  two \n")) == ["one", "two"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2023-11-16 18:15:46.68,374", "3 columns are wanted, got 2"),
        ("2023-11-16 18:15:46.68,x,44", "ContextTokens must be 1 to 16777216 tokens; got 'x'"),
        ("2023-11-16 18:15:46.68,374,0", "GeneratedTokens must be"),
        ("2023-11-16 18:15:46.68,374,-3", "GeneratedTokens must be"),
        ("2023-11-16 18:15:46.68,99999999999999999999999,1", "ContextTokens must be"),
        ("yesterday,374,44", "TIMESTAMP must be a date and time; got 'yesterday'"),
    ],
)
def test_bad_rows_of_azure_are_named(write, row, said):
    path = write(AZURE + row + "\n")
    with pytest.raises(BadDataset) as refusal:
        read_azure(path, 10)
    assert f"{path}, line 5: {said}" in str(refusal.value)


def test_other_columns_are_refused(write):
    with pytest.raises(BadDataset, match="line 1: the columns must be TIMESTAMP,ContextTokens"):
        read_azure(write("a,b\n1,2\n"), 10)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"timestamp": None}, "timestamp must be milliseconds; got None"),
        ({"timestamp": -1}, "timestamp must be"),
        ({"timestamp": float("nan")}, "timestamp must be"),
        ({"timestamp": True}, "timestamp must be"),
        ({"input_length": "5"}, "input_length must be 1 to"),
        ({"input_length": 1e3}, "input_length must be 1 to"),
        ({"output_length": 2**40}, "output_length must be 1 to"),
        ({"hash_ids": 5}, "hash_ids must be a list of integers"),
        ({"hash_ids": [1, "2"]}, "hash_ids must be a list of integers"),
    ],
)
def test_bad_lines_of_mooncake_are_named(write, change, said):
    line = json.dumps(json.loads(MOONCAKE.splitlines()[0]) | change)
    with pytest.raises(BadDataset, match="line 4: " + said):
        read_mooncake(write(MOONCAKE + line), 10)


@pytest.mark.parametrize("line", ["{", "[]", "5", "[" * 100_000, "\x00"])
def test_lines_that_are_no_objects_are_named(write, line):
    for read in (read_mooncake, read_custom):
        with pytest.raises(BadDataset, match="line 1: "):
            read(write(line), 10)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "prompt must be text; got None"),
        ({"prompt": ""}, "prompt must be text"),
        ({"prompt": 5}, "prompt must be text"),
        ({"prompt": "a", "output_tokens": 0}, "output_tokens must be 1 to"),
    ],
)
def test_bad_lines_of_custom_are_named(write, row, said):
    with pytest.raises(BadDataset, match="line 1: " + said):
        read_custom(write(json.dumps(row)), 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "list of conversations"),
        ("[5]", "entry 0: conversations must be a list"),
        ('[{"conversations": [5]}]', "entry 0: value of a turn must be text"),
        ('[{"conversations": [{"value": 5}]}]', "entry 0: value of a turn must be text"),
    ],
)
def test_bad_sharegpt_is_named(write, text, said):
    with pytest.raises(BadDataset, match=said):
        read_sharegpt(write(text))


def test_bytes_that_are_no_text_are_refused(write):
    for read in (read_mooncake, read_custom, read_azure):
        with pytest.raises(BadDataset, match="no UTF-8"):
            read(write(b"\xff\xfe{}\n"), 10)
    with pytest.raises(BadDataset):
        read_sharegpt(write(b'["\xff"]'))


def test_a_damaged_archive_is_refused(write):
    whole = gzip.compress(MOONCAKE.encode())
    for damaged in (whole[:20], whole[:10] + b"\xff" * 30):
        with pytest.raises(BadDataset, match="cannot read"):
            read_mooncake(write(damaged), 10)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadDataset, match="cannot read"):
        read_sharegpt(tmp_path / "none")


def test_an_empty_text_is_refused(write):
    with pytest.raises(BadDataset, match="no line of text"):
        read_sonnet(write("\n\n"))


def test_a_line_without_an_end_is_refused(write, monkeypatch):
    monkeypatch.setattr("octavo.bench.datasets.LINE_BYTES_MAX", 100)
    with pytest.raises(BadDataset, match="line 1 is longer than 100 bytes"):
        read_custom(write("x" * 200), 10)


def test_an_archive_that_unpacks_without_an_end_is_refused(write, monkeypatch):
    monkeypatch.setattr("octavo.bench.datasets.FILE_BYTES_MAX", 1000)
    bomb = gzip.compress(b"\n" * 100_000)
    for read in (read_sonnet, read_sharegpt):
        with pytest.raises(BadDataset, match="is longer than"):
            read(write(bomb))
