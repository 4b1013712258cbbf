# SPDX-License-Identifier: Apache-2.0
"""State machines that count what they do, and runs of as many transitions as were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, run_state_machine_as_test

STEP_COUNT = 100  # rules that a life is drawn with at most
# By machine, since the tests began: rules that called something, and were checked afterwards.
num_made: Counter[str] = Counter()


class CountedMachine(RuleBasedStateMachine):
    """A rule is a transition, whose checks are ``check_all``; a longer rule has several."""

    # Transitions of a life, on average at least. Some draws end early, and some rules call nothing.
    mean_length: ClassVar[int] = 55

    def check_all(self) -> None:
        """Everything that must hold between two calls."""
        raise NotImplementedError

    def did_nothing(self) -> None:
        """This rule turned out to call nothing: it does not count."""
        num_made[type(self).__name__] -= 1

    @invariant()
    def after_each_rule(self) -> None:
        num_made[type(self).__name__] += 1
        self.check_all()


def run_machine(
    machine: type[CountedMachine], num_transitions: int, *, phases: Sequence[Phase] = tuple(Phase)
) -> None:
    """Make at least that many transitions, or as many times more as the hypothesis profile draws
    more than its usual 100 examples; AssertionError if there were fewer.
    """
    wanted = num_transitions * settings().max_examples // 100
    before = num_made[machine.__name__]
    profile_phases = set(settings().phases)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=-(-wanted // machine.mean_length),
            stateful_step_count=STEP_COUNT,
            deadline=None,
            phases=[phase for phase in phases if phase in profile_phases],
            suppress_health_check=list(HealthCheck),
        ),
    )
    made = num_made[machine.__name__] - before
    assert made >= wanted, f"{machine.__name__}: {made} transitions, {wanted} wanted"
