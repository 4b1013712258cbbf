# SPDX-License-Identifier: Apache-2.0
"""What grammars have cost since the engine started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GrammarStats:
    """Times in seconds: of a clock for compilations, which admission's threads count, and of the
    engine's CPU for masks, which its thread counts.

    num_compiled   grammars compiled, in ``compile_s`` together; ``num_reused`` were there already
    num_refused    texts that are no grammar, or too large a one
    num_masks      masks made, in ``mask_s`` together, the longest in ``mask_s_max``
    accept_s       in all between a token and the next mask, the mask included
    num_cut        answers that were ended because their tokens ran out
    """

    num_compiled: int = 0
    num_reused: int = 0
    num_refused: int = 0
    compile_s: float = 0.0
    num_masks: int = 0
    mask_s: float = 0.0
    mask_s_max: float = 0.0
    accept_s: float = 0.0
    num_cut: int = 0

    def masked(self, seconds: float) -> None:
        self.num_masks += 1
        self.mask_s += seconds
        self.mask_s_max = max(self.mask_s_max, seconds)

    def accepted(self, seconds: float) -> None:
        self.accept_s += seconds
