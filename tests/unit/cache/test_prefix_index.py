# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from octavo.cache.cache_key import CacheKey
from octavo.cache.prefix_index import MAX_COMPARED, Match, Node, PrefixIndex, chain_digest

KEY = CacheKey()


def make() -> tuple[PrefixIndex, list[int]]:
    dropped: list[int] = []
    return PrefixIndex(2, on_drop=dropped.append), dropped


def publish(index: PrefixIndex, token_ids: list[int], first_block: int) -> list[Node]:
    """Publish a prompt's blocks of two tokens; block ids count up from ``first_block``."""
    chain: list[Node] = []
    for start in range(0, len(token_ids), 2):
        node = index.publish(
            chain[-1] if chain else None,
            KEY,
            token_ids[start : start + 2],
            first_block + start // 2,
        )
        assert node is not None
        chain.append(node)
    return chain


def blocks(match: Match) -> list[int]:
    return [node.block_id for node in match.nodes]


def test_the_digest_chains_and_is_stable() -> None:
    first = chain_digest(KEY.digest(), b"\x01\x00\x00\x00\x02\x00\x00\x00")
    index, _ = make()
    (node,) = publish(index, [1, 2], 0)
    assert node.digest == first
    assert len(first) == 16
    assert first.hex() == "3be44f3554dfe5d923ac776632d484aa"
    assert chain_digest(first, b"") != chain_digest(KEY.digest(), b"")


def test_whole_blocks_match_and_then_part_of_one_more() -> None:
    index, _ = make()
    publish(index, [1, 2, 3, 4, 5, 6], 0)
    match = index.match(KEY, [1, 2, 3, 4, 5, 9], 6)
    assert blocks(match) == [0, 1]
    assert match.partial is not None
    assert (match.partial.block_id, match.num_partial_tokens) == (2, 1)
    assert blocks(index.match(KEY, [1, 2, 3, 4], 3)) == [0]
    assert index.match(KEY, [1, 2, 3, 4], 3).num_partial_tokens == 1
    assert index.match(KEY, [9, 2], 2) == Match((), None, 0)
    assert index.match(CacheKey(salt="x"), [1, 2], 2) == Match((), None, 0)


def test_the_best_of_several_continuations_is_copied_from() -> None:
    index = PrefixIndex(4, on_drop=lambda _: None)
    for block_id, tokens in enumerate(([1, 2, 9, 9], [1, 2, 3, 9], [1, 9, 9, 9])):
        index.publish(None, KEY, tokens, block_id)
    match = index.match(KEY, [1, 2, 3, 4, 5], 4)
    assert match.partial is not None
    assert (match.partial.block_id, match.num_partial_tokens) == (1, 3)


def test_partial_matching_looks_at_the_newest_continuations_only() -> None:
    index = PrefixIndex(2, on_drop=lambda _: None)
    for block_id in range(MAX_COMPARED + 10):
        index.publish(None, KEY, [1, 100 + block_id], block_id)
    match = index.match(KEY, [1, 5, 6], 2)
    assert match.partial is not None
    assert match.partial.block_id == MAX_COMPARED + 9


def test_equal_content_keeps_the_older_block() -> None:
    index, _ = make()
    (older,) = publish(index, [1, 2], 0)
    assert index.publish(None, KEY, [1, 2], 7) is older
    assert index.node(7) is None
    assert len(index) == 1


def test_what_follows_a_dropped_block_is_dropped_too() -> None:
    index, dropped = make()
    chain = publish(index, [1, 2, 3, 4, 5, 6], 0)
    publish(index, [1, 2, 9, 9], 5)  # block 5 is a duplicate of 0; 6 holds [9, 9]
    publish(index, [8, 8], 9)
    index.drop(1)
    assert sorted(dropped) == [1, 2]
    assert [node.is_live for node in chain] == [True, False, False]
    assert blocks(index.match(KEY, [1, 2, 9, 9], 4)) == [0, 6]
    index.drop(0)
    assert sorted(dropped) == [0, 1, 2, 6]
    index.drop(0)  # knows nothing of it any more
    assert len(index) == 1
    assert index.faults() == []
    index.clear()
    assert len(index) == 0
    assert index._roots == {}


def test_a_digest_that_collides_is_not_a_hit() -> None:
    """Everything has the same digest: the first block published is the only one ever found."""
    index = PrefixIndex(2, on_drop=lambda _: None, digest=lambda parent, tokens: b"same")
    first = index.publish(None, KEY, [1, 2], 0)
    assert first is not None
    assert index.publish(None, KEY, [3, 4], 1) is None
    assert index.publish(first, KEY, [1, 2], 2) is None  # same tokens, other parent
    assert blocks(index.match(KEY, [3, 4, 5], 3)) == []
    assert blocks(index.match(KEY, [1, 2, 1, 2, 5], 5)) == [0]
    assert index.faults() == []


def test_faults_has_teeth() -> None:
    index, _ = make()
    first, second = publish(index, [1, 2, 3, 4], 0)
    del index._by_digest[second.digest]
    first.children.clear()
    second.is_live = False
    assert index.faults() == [
        "block 1 is indexed under a node of block 1",
        "block 1 cannot be found by its digest",
        "block 1 is not among its parent's children",
        "2 blocks published, 1 digests, 1 reachable",
    ]
