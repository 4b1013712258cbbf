# SPDX-License-Identifier: Apache-2.0
"""The pins that callers have asked for, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from octavo.cache.block_manager import CacheKey
from octavo.engine.engine import Engine
from octavo.types.errors import InvalidRequest

PINS_MAX = 1024  # names come from clients: what is remembered of them is bounded


@dataclass(frozen=True, slots=True)
class Pin:
    """``num_pinned_tokens`` of the prompt's ``num_tokens`` stay cached: full blocks alone can, and
    at most half of all blocks may."""

    pin_id: str
    token_ids: tuple[int, ...]
    cache_salt: str
    num_pinned_tokens: int

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


class PinBoard:
    """Pins and unpins by id. Every method must run in the engine's thread (``AsyncEngine.ask``):
    the blocks belong to it. A reset of the prefix cache has to go through here, too."""

    def __init__(self) -> None:
        self._pins: dict[str, Pin] = {}
        # By prompt and salt. Comparing with every pin would take a second where all begin alike.
        self._ids: dict[tuple[tuple[int, ...], str], str] = {}
        self._numbers = count()

    def pin(self, engine: Engine, token_ids: Sequence[int], cache_salt: str) -> Pin:
        """Keep what is cached of this prompt. A second pin of the same replaces the first, and has
        its id. Raises ``InvalidRequest`` when nothing of it can be kept.
        """
        what = tuple(token_ids), cache_salt
        same = self._ids.get(what)
        if same is None and len(self._pins) >= PINS_MAX:
            raise InvalidRequest(f"there are {PINS_MAX} pins already; unpin one", param="prompt")
        num_pinned = engine.blocks.pin(CacheKey(salt=cache_salt), what[0])
        if num_pinned == 0:
            if same is not None:  # the blocks have let its old pin go
                self._forget(same)
            usage = engine.blocks.usage()
            raise InvalidRequest(
                "no full block of the prompt is in the prefix cache, or no more may be pinned:"
                f" {usage.num_pinned} of {usage.num_blocks} blocks are, and half may be",
                param="prompt",
            )
        pin_id = same or f"pin-{next(self._numbers)}"
        self._ids[what] = pin_id
        pin = self._pins[pin_id] = Pin(pin_id, *what, num_pinned)
        return pin

    def unpin(self, engine: Engine, pin_id: str) -> bool:
        """Whether there was such a pin."""
        if pin_id not in self._pins:
            return False
        pin = self._forget(pin_id)
        engine.blocks.unpin(CacheKey(salt=pin.cache_salt), pin.token_ids)
        return True

    def pins(self) -> list[Pin]:
        """Oldest first."""
        return list(self._pins.values())

    def reset_prefix_cache(self, engine: Engine, *, preempt_running: bool = False) -> bool:
        """Forget everything cached, pins included. Whether all of its memory is free again, but
        for what a step in flight still touches. ``preempt_running``: requests inside first give up
        what was computed for them."""
        self._pins.clear()
        self._ids.clear()
        return engine.reset_prefix_cache(preempt_running=preempt_running)

    def _forget(self, pin_id: str) -> Pin:
        pin = self._pins.pop(pin_id)
        del self._ids[pin.token_ids, pin.cache_salt]
        return pin
