# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from octavo.cache.eviction import (
    EVICTION_POLICIES,
    EvictionPolicy,
    LruPolicy,
    S3FifoPolicy,
    make_policy,
)
from octavo.types.errors import InvalidConfig


def drain(policy: EvictionPolicy) -> list[int]:
    return [policy.pop() for _ in range(len(policy))]


def find_again(policy: EvictionPolicy, block_id: int) -> None:
    """A lookup finds the block; its sequence runs and ends."""
    policy.remove(block_id)
    policy.hit(block_id)
    policy.add(block_id)


def test_lru_gives_up_what_was_unused_for_longest() -> None:
    policy = LruPolicy()
    for block_id in range(4):
        policy.add(block_id)
    find_again(policy, 1)
    policy.forget(2)
    assert drain(policy) == [0, 3, 1]


def test_s3fifo_keeps_a_template_through_a_flood_that_washes_it_out_of_lru() -> None:
    survives = {}
    for policy in (LruPolicy(), S3FifoPolicy()):
        policy.add(0)
        find_again(policy, 0)  # the template was of use twice
        for block_id in range(1, 100):  # prompts that never come again, ten blocks of room
            policy.add(block_id)
            if len(policy) > 10:
                policy.pop()
        survives[type(policy)] = 0 in policy
    assert survives == {LruPolicy: False, S3FifoPolicy: True}


def test_s3fifo_lets_a_favourite_go_in_the_end() -> None:
    policy = S3FifoPolicy()
    policy.add(0)
    for _ in range(50):
        find_again(policy, 0)
    policy.add(1)
    find_again(policy, 1)
    for turn in range(2, 2 + S3FifoPolicy.MAX_HITS):  # newer favourites push it out
        policy.add(turn)
        find_again(policy, turn)
    order = drain(policy)
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert order[-1] == 0


def test_forgotten_content_takes_its_fame_along() -> None:
    policy = S3FifoPolicy()
    policy.add(0)
    policy.remove(0)
    policy.hit(0)
    policy.forget(0)  # while in use
    policy.add(1)
    find_again(policy, 1)
    policy.add(0)  # new content
    assert policy.pop() == 0


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_every_policy_gives_up_each_block_once(name: str) -> None:
    policy = make_policy(name)
    for block_id in range(20):
        policy.add(block_id)
        if block_id % 3 == 0:
            find_again(policy, block_id)
    policy.forget(3)
    policy.forget(4)
    policy.remove(6)
    assert 6 not in policy
    assert sorted(drain(policy)) == [i for i in range(20) if i not in (3, 4, 6)]
    with pytest.raises(KeyError):
        policy.pop()


def test_an_unknown_policy_is_refused_with_the_choices() -> None:
    with pytest.raises(InvalidConfig, match="lru, s3fifo, got 'fifo'"):
        make_policy("fifo")
