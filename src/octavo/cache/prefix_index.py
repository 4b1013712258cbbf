# SPDX-License-Identifier: Apache-2.0
"""Which computed blocks hold which tokens, so that a sequence can start where another has been."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from octavo.cache.cache_key import CacheKey
from octavo.types.errors import CorruptState

Digest = Callable[[bytes, bytes], bytes]

# Children compared when looking for part of a block: the newest ones, so that a template with
# thousands of continuations costs no more than one with sixteen.
MAX_COMPARED = 16


def chain_digest(parent: bytes, tokens: bytes) -> bytes:
    """16 bytes that stand for a block's tokens and everything before them.

    Keyless and unsalted, so it is the same in every process and on every machine.
    """
    return hashlib.blake2b(parent + tokens, digest_size=16).digest()


class Branch:
    """A point of the tree that blocks may follow."""

    __slots__ = ("children", "digest")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        # By the packed first token, so that partial matches compare only what can match at all.
        self.children: dict[bytes, dict[Node, None]] = {}


class Root(Branch):
    """Where all prompts with one key begin."""

    __slots__ = ("key",)

    def __init__(self, key: CacheKey) -> None:
        super().__init__(key.digest())
        self.key = key


class Node(Branch):
    """A published block: full, computed, and never written again."""

    __slots__ = ("block_id", "is_live", "parent", "tokens")

    def __init__(self, digest: bytes, parent: Branch, tokens: bytes, block_id: int) -> None:
        super().__init__(digest)
        self.parent = parent
        self.tokens = tokens  # packed, four bytes each
        self.block_id = block_id
        self.is_live = True  # False once nothing can find it


class Match(NamedTuple):
    """The longest computed prefix: whole blocks, then the first tokens of one more."""

    nodes: tuple[Node, ...]
    partial: Node | None
    num_partial_tokens: int


class PrefixIndex:
    """A tree of published blocks, found through a chain of digests.

    A digest only finds a candidate: its tokens and its parent are compared before it counts, so
    two prompts with one digest can never be served each other's keys and values; the second is
    simply not cached. A block whose parent leaves the index could never be reached again and leaves
    with it. There is at most one node per block, which bounds the index.
    """

    def __init__(
        self,
        block_size: int,
        *,
        on_drop: Callable[[int], None],
        digest: Digest = chain_digest,
    ) -> None:
        """``on_drop(block)`` is told of every block that leaves the index."""
        self.block_size = block_size
        self._on_drop = on_drop
        self._digest = digest
        self._pack = struct.Struct(f"<{block_size}i").pack
        self._roots: dict[CacheKey, Root] = {}
        self._by_digest: dict[bytes, Node] = {}
        self._by_block: dict[int, Node] = {}

    def __len__(self) -> int:
        """Published blocks."""
        return len(self._by_block)

    def node(self, block_id: int) -> Node | None:
        """What the index knows of a block; None when it cannot be found."""
        return self._by_block.get(block_id)

    def match(self, key: CacheKey, token_ids: Sequence[int], num_tokens_max: int) -> Match:
        """The longest computed prefix of ``token_ids``, at most ``num_tokens_max`` tokens of it.

        Changes nothing. Cost: one digest per block matched, and one more.
        """
        root = self._roots.get(key)
        if root is None:
            return Match((), None, 0)
        branch: Branch = root
        size = self.block_size
        nodes: list[Node] = []
        for start in range(0, num_tokens_max - size + 1, size):
            tokens = self._pack(*token_ids[start : start + size])
            node = self._child(branch, tokens)
            if node is None:
                break
            nodes.append(node)
            branch = node
        start = len(nodes) * size
        rest = token_ids[start : min(start + size, num_tokens_max)]
        partial, num_partial = _longest_common(branch, struct.pack(f"<{len(rest)}i", *rest))
        return Match(tuple(nodes), partial, num_partial)

    def _child(self, branch: Branch, tokens: bytes) -> Node | None:
        node = self._by_digest.get(self._digest(branch.digest, tokens))
        if node is None or node.parent is not branch or node.tokens != tokens:
            return None
        return node

    def publish(
        self, parent: Node | None, key: CacheKey, token_ids: Sequence[int], block_id: int
    ) -> Node | None:
        """Make one full block findable after ``parent`` (None: at the start of a prompt).

        Returns the node that holds these tokens: an older block's, if there is one, which is kept.
        None when their digest belongs to other tokens: then neither this block nor any after it
        can be found.
        """
        tokens = self._pack(*token_ids)
        branch: Branch
        if parent is not None:
            branch = parent
        else:
            branch = self._roots.get(key) or Root(key)
        digest = self._digest(branch.digest, tokens)
        older = self._by_digest.get(digest)
        if older is not None:
            return older if older.parent is branch and older.tokens == tokens else None
        if block_id in self._by_block:
            raise CorruptState(f"block {block_id} is published twice, with different tokens")
        if isinstance(branch, Root):
            self._roots[key] = branch
        node = Node(digest, branch, tokens, block_id)
        branch.children.setdefault(tokens[:4], {})[node] = None
        self._by_digest[digest] = node
        self._by_block[block_id] = node
        return node

    def drop(self, block_id: int) -> None:
        """This block's content is gone or must not be found: it leaves, and all after it do."""
        top = self._by_block.get(block_id)
        if top is None:
            return
        siblings = top.parent.children[top.tokens[:4]]
        del siblings[top]
        if not siblings:
            del top.parent.children[top.tokens[:4]]
        if isinstance(top.parent, Root) and not top.parent.children:
            del self._roots[top.parent.key]  # keys under which nothing is cached cost memory too
        leaving = [top]
        while leaving:
            node = leaving.pop()
            node.is_live = False
            leaving += _children(node)
            node.children.clear()
            del self._by_digest[node.digest]
            del self._by_block[node.block_id]
            self._on_drop(node.block_id)

    def clear(self) -> None:
        """Forget everything."""
        for root in list(self._roots.values()):
            for node in list(_children(root)):
                self.drop(node.block_id)

    def faults(self) -> list[str]:
        """Every way in which the two maps and the tree disagree. O(blocks)."""
        found = []
        for block_id, node in self._by_block.items():
            if node.block_id != block_id or not node.is_live:
                found.append(f"block {block_id} is indexed under a node of block {node.block_id}")
            if self._by_digest.get(node.digest) is not node:
                found.append(f"block {block_id} cannot be found by its digest")
            if node not in node.parent.children.get(node.tokens[:4], ()):
                found.append(f"block {block_id} is not among its parent's children")
        reachable = sum(1 for root in self._roots.values() for _ in _descendants(root))
        if not len(self._by_digest) == len(self._by_block) == reachable:
            found.append(
                f"{len(self._by_block)} blocks published, {len(self._by_digest)} digests,"
                f" {reachable} reachable"
            )
        return found


def _children(branch: Branch) -> Iterator[Node]:
    for siblings in branch.children.values():
        yield from siblings


def _descendants(branch: Branch) -> Iterator[Node]:
    waiting = list(_children(branch))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _children(node)


def _longest_common(branch: Branch, tokens: bytes) -> tuple[Node | None, int]:
    best, best_count = None, 0
    for node in islice(reversed(branch.children.get(tokens[:4], {})), MAX_COMPARED):
        count = _num_common_bytes(node.tokens, tokens) // 4
        if count > best_count:
            best, best_count = node, count
    return best, best_count


def _num_common_bytes(left: bytes, right: bytes) -> int:
    for idx, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return idx
    return min(len(left), len(right))
