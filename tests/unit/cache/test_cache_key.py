# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from octavo.cache.cache_key import CacheKey


def test_the_digest_is_the_same_in_every_process() -> None:
    """Written down once: a change of this value makes every stored cache useless."""
    assert CacheKey().digest().hex() == "3ca2d1c2c45fd4288a5d7731d86fb687"


def test_parts_cannot_run_into_each_other() -> None:
    keys = [CacheKey("ab", "c"), CacheKey("a", "bc"), CacheKey("abc"), CacheKey("", "abc")]
    assert len({key.digest() for key in keys}) == len(keys)
