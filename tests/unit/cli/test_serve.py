# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cli.serve import shows_books


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_the_books_are_open_to_this_machine(host):
    assert shows_books(host, None)
    assert not shows_books(host, False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.org", ""])
def test_the_books_are_closed_to_others(host):
    assert not shows_books(host, None)
    assert shows_books(host, True)
