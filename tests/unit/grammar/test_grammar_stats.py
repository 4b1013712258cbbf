# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from octavo.grammar.stats import GrammarStats


def test_the_longest_mask_is_remembered():
    stats = GrammarStats()
    for seconds in (0.25, 0.5, 0.125):
        stats.masked(seconds)
    assert (stats.num_masks, stats.mask_s, stats.mask_s_max) == (3, 0.875, 0.5)
