# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.types import env
from octavo.types.env import ChaosRates
from octavo.types.errors import InvalidConfig


def test_chaos_is_off_unless_it_is_asked_for() -> None:
    assert env.chaos({}) is None
    assert env.chaos({"OCTAVO_CHAOS": ""}) is None


def test_chaos_names_its_faults_and_their_rates() -> None:
    text = "preempt:0.3, swapfail:0.05,abort:0.01,stepfail:1"
    assert env.chaos({"OCTAVO_CHAOS": text}) == ChaosRates(0.3, 0.05, 0.01, 1.0)
    assert env.chaos({"OCTAVO_CHAOS": "abort:0.5"}) == ChaosRates(abort=0.5)


@pytest.mark.parametrize(
    "text",
    [
        "preempt",
        "preempt:",
        "preempt:2",
        "preempt:-0.1",
        "preempt:nan",
        "preempt=0.1",
        "sleep:0.1",
        "abort:0.1,abort:0.1",
        "abort:0.1,",
        ":0.1",
    ],
)
def test_a_bad_value_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="OCTAVO_CHAOS must be"):
        env.chaos({"OCTAVO_CHAOS": text})


def test_the_key_of_a_server_stays_with_octavo():
    environ = {"OCTAVO_API_KEY": "sk-1", "PATH": "/bin"}
    assert env.api_key(environ) == "sk-1"
    assert env.api_key({"OCTAVO_API_KEY": ""}) is None
    assert env.for_child({"A": "b"}, environ) == {"PATH": "/bin", "A": "b"}
