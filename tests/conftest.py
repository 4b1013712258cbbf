# SPDX-License-Identifier: Apache-2.0
"""Fixtures that every test may use. Models are pulled once, through octavo's own hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import Phase, settings

# A normal run draws hypothesis's 100 examples per property; `--hypothesis-profile=nightly` draws
# enough for over a million transitions of the block manager.
settings.register_profile("nightly", max_examples=10_000)
# Planted errors need to be noticed, not to be explained by the smallest example.
settings.register_profile("mutate", max_examples=60, phases=[Phase.generate])

DATA_DIR = Path(__file__).parent / "data"


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
