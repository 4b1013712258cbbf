# SPDX-License-Identifier: Apache-2.0
"""What, besides the tokens, two sequences must agree on to share computed blocks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The typed parts of a prefix key.

    salt      keeps tenants apart: nobody can learn by timing what another tenant has cached
    adapter   name of the weights added to the model's own; they change every key and value
    """

    salt: str = ""
    adapter: str = ""

    def digest(self) -> bytes:
        """16 bytes, the same in every process: the root of the hash chain."""
        # Lengths go first so that ("ab", "c") and ("a", "bc") differ.
        parts = [part.encode() for part in (self.salt, self.adapter)]
        state = hashlib.blake2b(digest_size=16, person=b"octavo-prefix-1")
        for part in parts:
            state.update(len(part).to_bytes(8, "little"))
            state.update(part)
        return state.digest()
