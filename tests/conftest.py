# SPDX-License-Identifier: Apache-2.0
"""Fixtures that every test may use. Models are pulled once, through octavo's own hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, settings

# A normal run draws hypothesis's 100 examples per property, and the state machines make 50,000
# transitions; `--hypothesis-profile=nightly` draws enough for a million of them.
settings.register_profile("nightly", max_examples=2_000)
# Planted errors need to be noticed, not to be explained by the smallest example.
settings.register_profile("mutate", max_examples=60, phases=[Phase.generate])

DATA_DIR = Path(__file__).parent / "data"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much the state machines have really done, if any ran."""
    from transitions import num_made

    if num_made:
        each = ", ".join(f"{name} {count:,}" for name, count in num_made.items())
        terminalreporter.write_line(f"{num_made.total():,} transitions of state machines: {each}")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    return DATA_DIR


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1, from the package index."""
    from octavo import hub

    return hub.resolve("smollm2-135m").path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma-3-270M, mixed quantisation, from the package index."""
    from octavo import hub

    return hub.resolve("gemma3-270m").path
