# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest

from octavo.progress import BatchBar, TerminalProgress, both, format_bytes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_off_a_terminal_each_label_is_one_line():
    stream = io.StringIO()
    with TerminalProgress(stream) as progress:
        progress("Pulling a", 0, 2_000_000)
        progress("Pulling a", 2_000_000, 2_000_000)
        progress("Waiting", 0, 0)
    assert stream.getvalue() == "Pulling a (2.0 MB)\nWaiting\n"


def test_on_a_terminal_there_is_a_bar():
    stream = Terminal()
    with TerminalProgress(stream) as progress:
        progress("Pulling a", 1_000_000, 2_000_000)
    assert "Pulling a" in stream.getvalue()
    assert "1.0/2.0 MB" in stream.getvalue()


def test_two_can_listen():
    heard: list[tuple[int, str, int, int]] = []
    progress = both(lambda *report: heard.append((1, *report)), lambda *r: heard.append((2, *r)))
    progress("Pulling a", 1, 2)
    assert heard == [(1, "Pulling a", 1, 2), (2, "Pulling a", 1, 2)]


def test_without_a_terminal_a_batch_shows_nothing(capsys):
    with BatchBar(2) as bar:
        bar.advance(10)
        bar.advance(10)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (98_362_432, "98.4 MB"), (2**50, "1125.9 TB")],
)
def test_sizes_are_decimal(size, text):
    assert format_bytes(size) == text
