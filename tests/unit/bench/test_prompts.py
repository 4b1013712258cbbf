# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from octavo.bench.datasets import BadDataset
from octavo.bench.prompts import SONNET_TASK, Wish, make_samples
from octavo.bench.records import Sample
from octavo.bench.words import WordCounter, Writer
from octavo.types.errors import InvalidConfig


def make(wish: Wish) -> list[Sample]:
    return asyncio.run(make_samples(wish, Writer(WordCounter())))


@pytest.fixture
def save(tmp_path):
    def save_file(text: str) -> Path:
        path = tmp_path / "data"
        path.write_text(text)
        return path

    return save_file


def test_random_has_the_wanted_lengths():
    samples = make(Wish(count=4, input_len=10, output_len=3))
    assert {(s.num_prompt_tokens, s.num_output_tokens, s.at_s) for s in samples} == {(10, 3, None)}
    assert len({s.prompt for s in samples}) == 4
    assert samples == make(Wish(count=4, input_len=10, output_len=3))
    assert samples != make(Wish(count=4, input_len=10, output_len=3, seed=1))


def test_random_without_flags_has_the_known_lengths():
    (sample,) = make(Wish(count=1))
    assert (sample.num_prompt_tokens, sample.num_output_tokens) == (1024, 128)


def test_random_lengths_vary_within_the_ratio():
    samples = make(Wish(count=200, input_len=100, output_len=10, range_ratio=0.5))
    lengths = {s.num_prompt_tokens for s in samples}
    assert (min(lengths), max(lengths)) == (pytest.approx(50, abs=5), pytest.approx(150, abs=5))
    assert {s.num_output_tokens for s in samples} == set(range(5, 16))


def test_random_prompts_share_a_beginning_that_comes_on_top():
    samples = make(Wish(count=3, input_len=10, output_len=3, prefix_len=20))
    assert {s.num_prompt_tokens for s in samples} == {30}
    assert len({tuple(s.prompt.split()[:20]) for s in samples}) == 1
    assert len({tuple(s.prompt.split()[20:]) for s in samples}) == 3


def test_what_does_not_fit_is_left_out():
    wish = Wish(count=100, input_len=10, output_len=2, range_ratio=0.5, max_model_len=12)
    samples = make(wish)
    assert 10 < len(samples) < 90
    assert all(s.num_prompt_tokens + s.num_output_tokens <= 12 for s in samples)
    with pytest.raises(BadDataset, match="no request that fits"):
        make(Wish(count=3, input_len=10, output_len=3, max_model_len=12))


def test_sharegpt_is_drawn_from_and_answers_are_as_long_as_there(save):
    rows = [{"conversations": [{"value": f"q {i}"}, {"value": "a " * i}]} for i in range(1, 9)]
    path = save(json.dumps(rows))
    samples = make(Wish("sharegpt", path, count=5))
    assert len({s.prompt for s in samples}) == 5
    assert all(s.num_output_tokens == int(s.prompt.split()[1]) for s in samples)
    assert [s.prompt for s in samples] != [f"q {i}" for i in range(1, 6)]
    assert {s.num_output_tokens for s in make(Wish("sharegpt", path, output_len=7))} == {7}


def test_custom_keeps_its_order_and_lengths(save):
    path = save('{"prompt": "a b"}\n{"prompt": "c", "output_tokens": 5}\n')
    assert make(Wish("custom", path)) == [Sample("a b", 2, 256), Sample("c", 1, 5)]
    assert [s.num_output_tokens for s in make(Wish("custom", path, output_len=9))] == [9, 9]


def test_sonnet_shares_its_first_lines(save):
    path = save("\n".join(f"line {idx} of ten words in all for the poem" for idx in range(40)))
    samples = make(Wish("sonnet", path, count=3, input_len=200, output_len=5, prefix_len=100))
    assert all(abs(s.num_prompt_tokens - 200) <= 10 for s in samples)
    lines = [s.prompt.split("\n") for s in samples]
    assert {one[0] for one in lines} == {SONNET_TASK}
    assert lines[0][:9] == lines[1][:9] == lines[2][:9]
    assert lines[0] != lines[1]


def test_azure_keeps_its_times(save):
    path = save(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46,37,4\n2023-11-16 18:15:48,600,9\n2023-11-16 18:15:49,5,6\n"
    )
    samples = make(Wish("azure", path, max_model_len=500))
    assert [(s.num_prompt_tokens, s.num_output_tokens, s.at_s) for s in samples] == [
        (37, 4, 0.0),
        (5, 6, 3.0),
    ]


def test_mooncake_prompts_share_what_their_ids_share(save):
    rows = [(1100, [0, 1, 2]), (1300, [0, 1, 3]), (700, [0, 4])]
    lines = [
        {"timestamp": 0, "input_length": length, "output_length": 2, "hash_ids": ids}
        for length, ids in rows
    ]
    first, second, third = (
        s.prompt.split() for s in make(Wish("mooncake", save("\n".join(map(json.dumps, lines)))))
    )
    assert [len(words) for words in (first, second, third)] == [1100, 1300, 700]
    assert first[:1024] == second[:1024]
    assert first[1024:] != second[1024:1100]
    assert first[:512] == third[:512]
    assert first[512:600] != third[512:600]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "burst"}, "--dataset-name must be one of random, sharegpt"),
        ({"name": "azure"}, "--dataset-name azure takes a file: give --dataset-path"),
        ({"path": Path("x")}, "--dataset-name random takes no file"),
        ({"range_ratio": 1.0}, "--random-range-ratio"),
        ({"range_ratio": float("nan")}, "--random-range-ratio"),
    ],
)
def test_bad_wishes_are_refused(fields, said):
    with pytest.raises(InvalidConfig, match=said):
        Wish(**fields)
