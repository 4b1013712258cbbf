# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import typer

from octavo.cli.flags import parse_bytes, parse_count


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1024", 1024),
        ("2GiB", 2 * 2**30),
        ("2gib", 2 * 2**30),
        ("512MB", 512 * 10**6),
        ("1.5G", 15 * 10**8),
        ("4 KiB", 4096),
        ("7b", 7),
        (9, 9),
    ],
)
def test_sizes(text, wanted):
    assert parse_bytes(text) == wanted


@pytest.mark.parametrize("text", ["", "GiB", "-1", "2 GB per day", "1e9", "2i", "0x10"])
def test_what_is_no_size(text):
    with pytest.raises(typer.BadParameter, match="write 2GiB"):
        parse_bytes(text)


@pytest.mark.parametrize(("text", "wanted"), [("8192", 8192), ("32k", 32_000), ("32K", 32_768)])
def test_counts(text, wanted):
    assert parse_count(text) == wanted


def test_what_is_no_count():
    with pytest.raises(typer.BadParameter, match="write 8192"):
        parse_count("-5")
